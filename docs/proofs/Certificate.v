(** Claims certificate.gap and certificate.flips, (37) to (39) of
    docs/theory.md.

    Let F be a function of a mask of d entries, differentiable at v in [0, 1]^d
    with the gradient g, and

      gap(v) = sum_i max(g_i v_i, - g_i (1 - v_i)) >= 0.                  (37)

    1. If F is convex on [0, 1]^d, then F(v) - F(x) <= gap(v) for all x of it,
       so F(u) - F(x) <= gap(v) + F(u) - F(v) for all u, and at most gap(u)
       where F is differentiable.
    2. gap(v) = 0 if and only if <g, x - v> >= 0 for all x in [0, 1]^d.
    3. At a mask u of {0, 1}^d let s_i = 1 - 2 u_i. If F is convex and
       s_i g_i > 0 for all i, then u is the only minimiser over [0, 1]^d.
    4. If F is twice differentiable along the edge from u to u with its entry i
       flipped, with second derivatives of at most L in size, then
       F(flipped) - F(u) >= s_i g_i - L / 2, so that no flip lowers F where
       s_i g_i >= L / 2.                                                  (38)

    The minimum over the cube is any value F(x) here: 1 and 3 hold whether one
    is attained or not. In 4 derivatives at the ends of the edge are from both
    sides, so that F is defined a little beyond it. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coq Require FunctionalExtensionality.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import Preliminaries.
Open Scope R_scope.

Section Certificate.

Variable d : nat.
Notation vector := (nat -> R).
Notation entry i := (1 <= i <= d)%nat.

Definition cube (v : vector) : Prop := forall i, entry i -> 0 <= v i <= 1.
Definition dot (x y : vector) : R := total d (fun i => x i * y i).
Definition minus (x y : vector) : vector := fun i => x i - y i.
Definition towards (s : R) (v x : vector) : vector := fun i => (1 - s) * v i + s * x i.

Definition convex (F : vector -> R) : Prop := forall v x s,
  cube v -> cube x -> 0 <= s <= 1 -> F (towards s v x) <= (1 - s) * F v + s * F x.

(** F has the gradient g at v, as a function on the cube. *)
Definition gradient (F : vector -> R) (v g : vector) : Prop :=
  forall eps, 0 < eps -> exists delta, 0 < delta /\ forall x, cube x ->
    norm d (minus x v) < delta ->
    Rabs (F x - F v - dot g (minus x v)) <= eps * norm d (minus x v).

(** (37) *)
Definition gap (v g : vector) : R :=
  total d (fun i => Rmax (g i * v i) (- g i * (1 - v i))).

(** * A convex function lies above its tangents *)

Lemma norm_nonneg x : 0 <= norm d x.
Proof. apply sqrt_pos. Qed.

Lemma cube_towards s v x : cube v -> cube x -> 0 <= s <= 1 -> cube (towards s v x).
Proof. intros V X I i E. specialize (V i E). specialize (X i E). unfold towards. nra. Qed.

Lemma norm_towards s v x : 0 <= s ->
  norm d (minus (towards s v x) v) = s * norm d (minus x v).
Proof.
  intro. rewrite <- norm_scal by easy. unfold norm, minus, towards. f_equal.
  apply total_ext. intro. ring.
Qed.

Lemma dot_towards s g v x :
  dot g (minus (towards s v x) v) = s * dot g (minus x v).
Proof.
  unfold dot. rewrite <- total_scal. apply total_ext.
  intro. unfold minus, towards. ring.
Qed.

Lemma tangent F v g x : convex F -> cube v -> gradient F v g -> cube x ->
  F v + dot g (minus x v) <= F x.
Proof.
  intros C V G X. apply Rnot_lt_le. intro L.
  set (n := norm d (minus x v)). assert (N : 0 <= n) by apply norm_nonneg.
  set (lack := F v + dot g (minus x v) - F x). assert (P : 0 < lack) by (unfold lack; lra).
  destruct (G (lack / (2 * (n + 1)))) as [delta [D near]].
  { apply Rdiv_lt_0_compat; lra. }
  set (s := Rmin 1 (delta / (2 * (n + 1)))).
  assert (S : 0 < s <= 1).
  { split; [| apply Rmin_l]. apply Rmin_glb_lt; [lra | apply Rdiv_lt_0_compat; lra]. }
  assert (SN : s * n < delta).
  { assert (s * (2 * (n + 1)) <= delta).
    { apply Rle_trans with (delta / (2 * (n + 1)) * (2 * (n + 1))).
      - apply Rmult_le_compat_r; [lra | apply Rmin_r].
      - right. field. lra. }
    nra. }
  specialize (near (towards s v x) (cube_towards s v x V X ltac:(lra))).
  rewrite norm_towards, dot_towards in near by lra. fold n in near.
  specialize (near SN). apply Rabs_le_between in near.
  pose proof (C v x s V X ltac:(lra)).
  assert (E : lack / (2 * (n + 1)) * n <= lack / 2).
  { apply Rle_trans with (lack / (2 * (n + 1)) * (n + 1)).
    - apply Rmult_le_compat_l; [left; apply Rdiv_lt_0_compat |]; lra.
    - right. field. lra. }
  assert (s * lack <= s * (lack / 2)).
  { apply Rle_trans with (lack / (2 * (n + 1)) * (s * n)); [unfold lack in *; nra |].
    replace (lack / (2 * (n + 1)) * (s * n)) with (s * (lack / (2 * (n + 1)) * n)) by ring.
    apply Rmult_le_compat_l; lra. }
  nra.
Qed.

(** * (39) *)

Lemma dot_opposite g v x : dot g (minus v x) = - dot g (minus x v).
Proof.
  replace (- dot g (minus x v)) with (-1 * dot g (minus x v)) by ring.
  unfold dot. rewrite <- total_scal. apply total_ext.
  intro. unfold minus. ring.
Qed.

Lemma gap_is_above v g x : cube x -> dot g (minus v x) <= gap v g.
Proof.
  intro X. apply total_le. intros i E. specialize (X i E). unfold minus.
  pose proof (Rmax_l (g i * v i) (- g i * (1 - v i))).
  pose proof (Rmax_r (g i * v i) (- g i * (1 - v i))). nra.
Qed.

Definition lowest (g : vector) : vector := fun i => if Rlt_dec 0 (g i) then 0 else 1.

Lemma gap_is_attained v g : dot g (minus v (lowest g)) = gap v g.
Proof.
  unfold dot, gap. apply total_ext. intro i.
  unfold minus, lowest. destruct Rlt_dec.
  - rewrite Rmax_left; nra.
  - rewrite Rmax_right; nra.
Qed.

Lemma cube_lowest g : cube (lowest g).
Proof. intros i _. unfold lowest. destruct Rlt_dec; lra. Qed.

(** * The statements *)

Theorem gap_nonneg v g : cube v -> 0 <= gap v g.
Proof.
  intro V. replace 0 with (dot g (minus v v)); [now apply gap_is_above |].
  unfold dot, minus. rewrite <- (Rmult_0_l (total d (fun _ => 0))), <- total_scal.
  apply total_ext. intro. ring.
Qed.

Theorem distance_to_the_best F v g : convex F -> cube v -> gradient F v g ->
  (forall x, cube x -> F v - F x <= gap v g) /\
  (forall u x, cube x -> F u - F x <= gap v g + F u - F v).
Proof.
  intros C V G.
  assert (A : forall x, cube x -> F v - F x <= gap v g).
  { intros x X. pose proof (tangent F v g x C V G X).
    pose proof (gap_is_above v g x X). rewrite dot_opposite in H0. lra. }
  split; [easy |]. intros u x X. specialize (A x X). lra.
Qed.

Theorem gap_is_0 v g : cube v ->
  gap v g = 0 <-> (forall x, cube x -> 0 <= dot g (minus x v)).
Proof.
  intro V. split.
  - intros Z x X. pose proof (gap_is_above v g x X). rewrite dot_opposite in H. lra.
  - intro A. specialize (A (lowest g) (cube_lowest g)).
    pose proof (gap_is_attained v g). rewrite dot_opposite in H.
    pose proof (gap_nonneg v g V). lra.
Qed.

Definition mask (u : vector) : Prop := forall i, entry i -> u i = 0 \/ u i = 1.
Definition sign (u : vector) (i : nat) : R := 1 - 2 * u i.

Theorem only_minimiser F u g : convex F -> mask u -> gradient F u g ->
  (forall i, entry i -> 0 < sign u i * g i) ->
  forall x, cube x -> (exists i, entry i /\ x i <> u i) -> F u < F x.
Proof.
  intros C M G P x X [i [E N]].
  assert (V : cube u) by (intros j J; destruct (M j J); lra).
  pose proof (tangent F u g x C V G X) as T.
  assert (A : forall j, entry j -> 0 <= g j * minus x u j /\
    (x j <> u j -> 0 < g j * minus x u j)).
  { intros j J. specialize (P j J). specialize (X j J). unfold sign, minus in *.
    destruct (M j J) as [Z | Z]; rewrite Z in *; split; intros; nra. }
  assert (0 < dot g (minus x u)); [| lra].
  rewrite <- (Rmult_0_l (total d (fun _ => 0))), <- total_scal.
  apply total_lt.
  - intros j J. rewrite Rmult_0_l. now apply A.
  - exists i. split; [easy |]. rewrite Rmult_0_l. now apply A.
Qed.

(** u with the number t for its entry i. *)
Definition along (u : vector) (i : nat) (t : R) : vector :=
  fun j => if Nat.eq_dec j i then t else u j.

Theorem single_flip F u i L (F' F'' : R -> R) : mask u -> entry i ->
  (forall t, 0 <= t <= 1 -> is_derive (fun t => F (along u i t)) t (F' t)) ->
  (forall t, 0 <= t <= 1 -> is_derive F' t (F'' t)) ->
  (forall t, 0 <= t <= 1 -> Rabs (F'' t) <= L) ->
  let g := F' (u i) in let flipped := along u i (1 - u i) in
  sign u i * g - L / 2 <= F flipped - F u /\
  (L / 2 <= sign u i * g -> F u <= F flipped).
Proof.
  intros M E D1 D2 B g flipped.
  assert (here : along u i (u i) = u).
  { apply FunctionalExtensionality.functional_extensionality. intro j. unfold along.
    now destruct Nat.eq_dec as [-> |]. }
  set (s := sign u i). set (phi t := F (along u i t)).
  assert (S : s * s = 1) by (unfold s, sign; destruct (M i E) as [-> | ->]; ring).
  assert (range : forall r, 0 <= r <= 1 -> 0 <= u i + s * r <= 1).
  { intros. unfold s, sign. destruct (M i E) as [-> | ->]; lra. }
  assert (line : forall r, is_derive (fun r => u i + s * r) r s) by
    (intro; auto_derive; [easy | ring]).
  pose proof (falls
    (fun r => s * g * r - L * r ^ 2 / 2 - phi (u i + s * r))
    (fun r => s * g - L * r - s * F' (u i + s * r))
    (fun r => - L - s * (s * F'' (u i + s * r)))) as A.
  assert (K : s * g * 1 - L * 1 ^ 2 / 2 - phi (u i + s * 1) <=
    s * g * 0 - L * 0 ^ 2 / 2 - phi (u i + s * 0)).
  { apply A.
    - intros r I. apply @is_derive_minus; [auto_derive; [easy | field] |].
      apply (is_derive_comp phi (fun r => u i + s * r)); [| apply line].
      now apply D1, range.
    - intros r I. apply @is_derive_minus; [auto_derive; [easy | ring] |].
      apply is_derive_scal, (is_derive_comp F' (fun r => u i + s * r)); [| apply line].
      now apply D2, range.
    - intros r I. specialize (B _ (range r I)). apply Rabs_le_between in B.
      replace (s * (s * F'' (u i + s * r))) with (F'' (u i + s * r)); [lra |].
      rewrite <- Rmult_assoc, S. ring.
    - unfold g. rewrite !Rmult_0_r, Rplus_0_r. ring. }
  unfold phi in K. rewrite (Rmult_0_r s), Rplus_0_r, here in K.
  replace (u i + s * 1) with (1 - u i) in K by (unfold s, sign; ring).
  fold flipped in K. split; [| intro]; lra.
Qed.

End Certificate.

Print Assumptions gap_nonneg.
Print Assumptions distance_to_the_best.
Print Assumptions gap_is_0.
Print Assumptions only_minimiser.
Print Assumptions single_flip.
