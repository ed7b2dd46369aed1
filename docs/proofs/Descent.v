(** Claim two-temperature.descent, the deterministic half: (18) of
    docs/theory.md.

    Let F have the gradient dF on [0, 1]^d, Lipschitz there with constant L; no
    convexity. A step (3) with g = dF(v) and eta <= 16 / (L H S) has, with p
    of (4),

      F(v+) <= F(v) - eta / 2 sum_i p_i g_i^2,

    so that for T such steps and every lower bound m of F on the cube

      min_{t <= T} sum_i p_{t,i} (d_i F(v_t))^2 <= 2 (F(v_1) - m) / (eta T),

    and 16 is sharp: at no larger rate does every step have the factor 1/2,
    not even for F(v) = L / 2 (v - 1/2)^2.

    p is any vector with v+ = v - eta p g and
    p_i = sigma_H'(xi_i) sigma_S'(w_i), which there is by [step_error]. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature StepError Certificate.
Open Scope R_scope.

Definition smooth (d : nat) (F : (nat -> R) -> R) (dF : (nat -> R) -> nat -> R) (L : R) :=
  (forall v, cube d v -> gradient d F v (dF v)) /\
  (forall x y, cube d x -> cube d y ->
    norm d (minus (dF x) (dF y)) <= L * norm d (minus x y)).

(** * Smooth functions lie below parabolas *)

Definition clamp (r : R) : R := Rmax 0 (Rmin 1 r).

Lemma clamp_range r : 0 <= clamp r <= 1.
Proof.
  unfold clamp. split; [apply Rmax_l | apply Rmax_lub; [lra | apply Rmin_l]].
Qed.

Lemma clamp_id r : 0 <= r <= 1 -> clamp r = r.
Proof. intro. unfold clamp. rewrite Rmin_right, Rmax_right; lra. Qed.

Lemma clamp_near r s : 0 <= r <= 1 -> Rabs (clamp s - r) <= Rabs (s - r).
Proof.
  intro I. pose proof (Rle_abs (s - r)). pose proof (Rle_abs (- (s - r))).
  rewrite Rabs_Ropp in H0. apply Rabs_le. unfold clamp, Rmax, Rmin.
  destruct (Rle_dec 1 s); destruct Rle_dec; lra.
Qed.

Lemma norm_sq d x : norm d x ^ 2 = total d (fun i => x i ^ 2).
Proof. unfold norm. apply pow2_sqrt, total_nonneg. intro. apply pow2_ge_0. Qed.

Section Smooth.

Variables (d : nat) (F : (nat -> R) -> R) (dF : (nat -> R) -> nat -> R) (L : R).
Hypothesis L_pos : 0 < L.
Hypothesis F_smooth : smooth d F dF L.
Variables x y : nat -> R.
Hypothesis X : cube d x.
Hypothesis Y : cube d y.

Let n := norm d (minus y x).
Let at_ r := towards r x y.
Let G r := dot d (dF (at_ r)) (minus y x).

Lemma at_cube r : 0 <= r <= 1 -> cube d (at_ r).
Proof. now apply cube_towards. Qed.

Lemma at_minus r s i : minus (at_ s) (at_ r) i = (s - r) * minus y x i.
Proof. unfold minus, at_, towards. ring. Qed.

Lemma norm_at r s : norm d (minus (at_ s) (at_ r)) = Rabs (s - r) * n.
Proof.
  unfold n. rewrite <- norm_scal by apply Rabs_pos. unfold norm. f_equal.
  apply total_ext. intro. rewrite at_minus, pow2_abs. ring.
Qed.

Lemma along_segment r eps : 0 <= r <= 1 -> 0 < eps -> exists delta, 0 < delta /\
  forall s, 0 <= s <= 1 -> Rabs (s - r) < delta ->
    Rabs (F (at_ s) - F (at_ r) - (s - r) * G r) <= eps * Rabs (s - r).
Proof.
  intros I E. assert (N : 0 <= n) by apply sqrt_pos.
  destruct (proj1 F_smooth (at_ r) (at_cube r I) (eps / (n + 1))) as [delta [D near]].
  { apply Rdiv_lt_0_compat; lra. }
  exists (delta / (n + 1)). split; [apply Rdiv_lt_0_compat; lra |].
  intros s J S. specialize (near (at_ s) (at_cube s J)). rewrite norm_at in near.
  pose proof (Rabs_pos (s - r)) as P.
  assert (Q : Rabs (s - r) * (n + 1) < delta).
  { apply Rmult_lt_compat_r with (r := n + 1) in S; [| lra].
    replace (delta / (n + 1) * (n + 1)) with delta in S by (field; lra). easy. }
  replace (dot d (dF (at_ r)) (minus (at_ s) (at_ r))) with ((s - r) * G r) in near.
  2: { unfold G, dot. rewrite <- total_scal. apply total_ext. intro. rewrite at_minus. ring. }
  eapply Rle_trans; [apply near; nra |].
  replace (eps / (n + 1) * (Rabs (s - r) * n)) with (eps * Rabs (s - r) * (n / (n + 1)))
    by (field; lra).
  rewrite <- Rmult_1_r. apply Rmult_le_compat_l; [apply Rmult_le_pos; lra |].
  apply Rmult_le_reg_r with (n + 1); [lra |]. field_simplify; lra.
Qed.

Lemma slope_along r : 0 < r <= 1 -> G r - G 0 <= L * r * n ^ 2.
Proof.
  intro I.
  assert (B : norm d (minus (dF (at_ r)) (dF (at_ 0))) ^ 2 <= (L * (r * n)) ^ 2).
  { apply pow_incr. split; [apply sqrt_pos |].
    eapply Rle_trans; [apply (proj2 F_smooth); apply at_cube; lra |].
    rewrite norm_at, Rminus_0_r, Rabs_right by lra. lra. }
  rewrite norm_sq in B.
  assert (P : 0 <= total d (fun i => (minus (dF (at_ r)) (dF (at_ 0)) i
    - L * r * minus y x i) ^ 2)) by (apply total_nonneg; intro; apply pow2_ge_0).
  rewrite (total_ext d _ (fun i => minus (dF (at_ r)) (dF (at_ 0)) i ^ 2
    - (2 * L * r * (dF (at_ r) i * minus y x i - dF (at_ 0) i * minus y x i)
    - (L * r) ^ 2 * minus y x i ^ 2))) in P by (intro; unfold minus; ring).
  rewrite !total_minus, !total_scal, !total_minus in P.
  rewrite <- (norm_sq d (minus y x)) in P. fold n in P.
  unfold G, dot in *. assert (0 < L * r) by nra. nra.
Qed.

Lemma parabola : F y <= F x + dot d (dF x) (minus y x) + L / 2 * n ^ 2.
Proof.
  set (f r := F (at_ (clamp r)) - G 0 * clamp r - L / 2 * n ^ 2 * clamp r ^ 2).
  assert (E0 : at_ 0 = x).
  { apply FunctionalExtensionality.functional_extensionality.
    intro. unfold at_, towards. ring. }
  assert (E1 : at_ 1 = y).
  { apply FunctionalExtensionality.functional_extensionality.
    intro. unfold at_, towards. ring. }
  assert (N : 0 <= n) by apply sqrt_pos.
  destruct (MVT_gen f 0 1 (fun r => G r - G 0 - L * r * n ^ 2)) as [c [C E]];
    rewrite ?Rmin_left, ?Rmax_right in * by lra.
  - intros r I.
    apply is_derive_ext_loc with
      (fun r => F (at_ (clamp r)) - G 0 * r - L / 2 * n ^ 2 * r ^ 2).
    { assert (O : locally r (fun s => 0 < s < 1)) by
        (apply (open_and (fun s => 0 < s) (fun s => s < 1));
          [apply open_gt | apply open_lt | lra]).
      revert O. apply filter_imp. intros s S. unfold f. rewrite (clamp_id s) by lra.
      reflexivity. }
    apply @is_derive_minus; [apply @is_derive_minus |].
    + apply is_derive_Reals. intros e EP.
      destruct (along_segment r (e / 2) ltac:(lra) ltac:(lra)) as [delta [D near]].
      assert (M : 0 < Rmin delta (Rmin r (1 - r))) by (repeat apply Rmin_glb_lt; lra).
      exists (mkposreal _ M). intros h H0 Hh. simpl in Hh.
      pose proof (Rmin_l delta (Rmin r (1 - r))).
      pose proof (Rmin_r delta (Rmin r (1 - r))).
      pose proof (Rmin_l r (1 - r)). pose proof (Rmin_r r (1 - r)).
      pose proof (Rle_abs h). pose proof (Rle_abs (- h)) as Hn. rewrite Rabs_Ropp in Hn.
      rewrite !clamp_id by lra.
      specialize (near (r + h) ltac:(lra)).
      replace (r + h - r) with h in near by ring. specialize (near ltac:(lra)).
      pose proof (Rabs_pos_lt h H0).
      replace ((F (at_ (r + h)) - F (at_ r)) / h - G r) with
        ((F (at_ (r + h)) - F (at_ r) - h * G r) / h) by (now field).
      unfold Rdiv at 1. rewrite Rabs_mult, Rabs_inv.
      apply Rmult_lt_reg_r with (Rabs h); [easy |].
      rewrite Rmult_assoc, Rinv_l by lra. nra.
    + auto_derive; [easy | ring].
    + auto_derive; [easy | field].
  - intros r I e EP.
    destruct (along_segment r 1 ltac:(lra) ltac:(lra)) as [delta [D near]].
    set (K := 1 + Rabs (G r) + Rabs (G 0) + L * n ^ 2).
    assert (KP : 1 <= K).
    { unfold K. pose proof (Rabs_pos (G r)). pose proof (Rabs_pos (G 0)).
      assert (0 <= L * n ^ 2) by (apply Rmult_le_pos; [lra | apply pow2_ge_0]). lra. }
    exists (Rmin delta (e / K)). split.
    { apply Rmin_glb_lt; [easy | apply Rdiv_lt_0_compat; lra]. }
    intros s [_ S]. unfold dist in *. simpl in *. unfold R_dist in *.
    pose proof (Rmin_l delta (e / K)). pose proof (Rmin_r delta (e / K)).
    pose proof (clamp_near r s I) as Q. pose proof (clamp_range s) as CS.
    set (s' := clamp s) in *. specialize (near s' CS ltac:(lra)).
    unfold f. fold s'. rewrite (clamp_id r I).
    pose proof (Rabs_pos (s' - r)) as P.
    assert (B : Rabs (F (at_ s') - G 0 * s' - L / 2 * n ^ 2 * s' ^ 2
      - (F (at_ r) - G 0 * r - L / 2 * n ^ 2 * r ^ 2)) <= K * Rabs (s' - r)).
    { replace (F (at_ s') - G 0 * s' - L / 2 * n ^ 2 * s' ^ 2
        - (F (at_ r) - G 0 * r - L / 2 * n ^ 2 * r ^ 2)) with
        ((F (at_ s') - F (at_ r) - (s' - r) * G r) + (s' - r) * G r
          + - ((s' - r) * G 0) + - (L * n ^ 2 * ((s' + r) / 2) * (s' - r))) by field.
      eapply Rle_trans; [apply Rabs_triang |].
      eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang |].
      eapply Rle_trans; [apply Rplus_le_compat_r, Rplus_le_compat_r, Rabs_triang |].
      rewrite !Rabs_Ropp, !Rabs_mult, (Rabs_right L), (Rabs_right (n ^ 2)),
        (Rabs_right ((s' + r) / 2)); try lra.
      2: { apply Rle_ge, pow2_ge_0. }
      assert (L * n ^ 2 * ((s' + r) / 2) * Rabs (s' - r) <= L * n ^ 2 * 1 * Rabs (s' - r)).
      { apply Rmult_le_compat_r; [easy |]. apply Rmult_le_compat_l; [| lra].
        apply Rmult_le_pos; [lra | apply pow2_ge_0]. }
      unfold K. lra. }
    eapply Rle_lt_trans; [exact B |].
    apply Rle_lt_trans with (K * Rabs (s - r)); [apply Rmult_le_compat_l; lra |].
    apply Rlt_le_trans with (K * (e / K)); [apply Rmult_lt_compat_l; lra |].
    right. field. lra.
  - unfold f in E. rewrite (clamp_id 0), (clamp_id 1), E0, E1 in E by lra.
    assert (G c - G 0 - L * c * n ^ 2 <= 0).
    { destruct (Req_dec c 0) as [-> | C0]; [right; ring |].
      pose proof (slope_along c ltac:(lra)). lra. }
    assert (G0 : G 0 = dot d (dF x) (minus y x)) by (unfold G; now rewrite E0). lra.
Qed.

End Smooth.

(** * A step, and many *)

Definition factor_of (H S eta g w p : R) : Prop :=
  sigma H (step S eta g w) = sigma H w - eta * p * g /\
  exists xi, between xi w (step S eta g w) /\ p = slope H xi * slope S w.

Lemma factor_range H S eta g w p : 0 < H -> 0 < S -> factor_of H S eta g w p ->
  0 < p <= H * S / 16.
Proof. intros HP SP [_ [xi [_ ->]]]. now apply factor_range. Qed.

Lemma mask_in_cube d H w : cube d (fun i => sigma H (w i)).
Proof. intros i _. pose proof (sigma_inside H (w i)) as I. unfold inside in I. lra. Qed.

Theorem descent d F dF L H S eta (w w' p : nat -> R) :
  0 < L -> 0 < H -> 0 < S -> 0 < eta <= 16 / (L * H * S) -> smooth d F dF L ->
  let v i := sigma H (w i) in let v' i := sigma H (w' i) in let g := dF v in
  (forall i, w' i = step S eta (g i) (w i)) ->
  (forall i, factor_of H S eta (g i) (w i) (p i)) ->
  F v' <= F v - eta / 2 * total d (fun i => p i * g i ^ 2).
Proof.
  intros LP HP SP E M v v' g W P.
  assert (V : forall i, minus v' v i = - (eta * p i * g i)).
  { intro i. destruct (P i) as [Q _]. unfold minus, v, v'. rewrite W, Q. ring. }
  pose proof (parabola d F dF L LP M v v' (mask_in_cube d H w) (mask_in_cube d H w')) as B.
  rewrite norm_sq in B. fold g in B.
  apply Rle_trans with (1 := B). rewrite Rplus_assoc. apply Rplus_le_compat_l.
  unfold dot. rewrite <- total_scal, <- total_plus.
  replace (- (eta / 2 * total d (fun i => p i * g i ^ 2))) with
    (- (eta / 2) * total d (fun i => p i * g i ^ 2)) by ring.
  rewrite <- total_scal. apply total_le. intros i _. rewrite V.
  pose proof (factor_range H S eta (g i) (w i) (p i) HP SP (P i)) as R.
  assert (Q : L * (eta * p i) <= 1).
  { apply Rle_trans with (L * (16 / (L * H * S) * (H * S / 16))).
    - apply Rmult_le_compat_l; [lra |]. apply Rmult_le_compat; lra.
    - right. field. lra. }
  assert (0 <= eta * p i * g i ^ 2).
  { apply Rmult_le_pos; [apply Rmult_le_pos; lra | apply pow2_ge_0]. }
  replace (L / 2 * (- (eta * p i * g i)) ^ 2) with
    (L * (eta * p i) * (eta * p i * g i ^ 2) / 2) by field.
  nra.
Qed.

Theorem descent_rate d F dF L H S eta m (T : nat) (w p : nat -> nat -> R) :
  0 < L -> 0 < H -> 0 < S -> 0 < eta <= 16 / (L * H * S) -> smooth d F dF L ->
  (1 <= T)%nat -> (forall v, cube d v -> m <= F v) ->
  let v t i := sigma H (w t i) in let g t := dF (v t) in
  (forall t i, (1 <= t <= T)%nat ->
    w (t + 1)%nat i = step S eta (g t i) (w t i) /\
    factor_of H S eta (g t i) (w t i) (p t i)) ->
  exists t, (1 <= t <= T)%nat /\
    total d (fun i => p t i * g t i ^ 2) <= 2 * (F (v 1%nat) - m) / (eta * INR T).
Proof.
  intros LP HP SP E M T1 low v g W.
  set (a t := total d (fun i => p t i * g t i ^ 2)).
  set (b := 2 * (F (v 1%nat) - m) / (eta * INR T)).
  assert (TP : 0 < INR T) by (apply lt_0_INR; lia).
  (* Otherwise all steps together fall below m. *)
  destruct (Classical_Prop.classic (exists t, (1 <= t <= T)%nat /\ a t <= b)) as [A | A];
    [easy | exfalso].
  assert (big : forall t, (1 <= t <= T)%nat -> b < a t).
  { intros t I. apply Rnot_le_lt. intro. apply A. now exists t. }
  assert (sum : forall n, (n <= T)%nat ->
    F (v (n + 1)%nat) <= F (v 1%nat) - eta / 2 * (INR n * b) /\
    ((1 <= n)%nat -> F (v (n + 1)%nat) < F (v 1%nat) - eta / 2 * (INR n * b))).
  { induction n as [| n I]; intro N.
    - simpl. split; [lra | lia].
    - destruct (I ltac:(lia)) as [I' _].
      pose proof (descent d F dF L H S eta (w (n + 1)%nat) (w (n + 1 + 1)%nat)
        (p (n + 1)%nat) LP HP SP E M) as S1. simpl in S1.
      specialize (S1 (fun i => proj1 (W (n + 1)%nat i ltac:(lia)))
        (fun i => proj2 (W (n + 1)%nat i ltac:(lia)))).
      change (F (v (n + 1 + 1)%nat) <= F (v (n + 1)%nat) - eta / 2 * a (n + 1)%nat) in S1.
      pose proof (big (n + 1)%nat ltac:(lia)) as Bt.
      rewrite S_INR. replace (Datatypes.S n + 1)%nat with (n + 1 + 1)%nat by lia.
      assert (eta / 2 * b < eta / 2 * a (n + 1)%nat) by (apply Rmult_lt_compat_l; lra).
      assert (F (v (n + 1 + 1)%nat) < F (v 1%nat) - eta / 2 * ((INR n + 1) * b)); lra. }
  destruct (sum T ltac:(lia)) as [_ S1]. specialize (S1 T1).
  pose proof (low (v (T + 1)%nat) (mask_in_cube d H _)) as S2.
  replace (eta / 2 * (INR T * b)) with (F (v 1%nat) - m) in S1 by (unfold b; field; lra).
  lra.
Qed.

(** 16 is sharp. *)
Theorem descent_sharp L H S eta : 0 < L -> 0 < H -> 0 < S -> 16 / (L * H * S) < eta ->
  let F v := L / 2 * (v - 1 / 2) ^ 2 in
  exists w p, let v := sigma H w in let g := L * (v - 1 / 2) in
    factor_of H S eta g w p /\
    F v - eta / 2 * (p * g ^ 2) < F (sigma H (step S eta g w)).
Proof.
  intros LP HP SP E F.
  assert (EP : 0 < eta).
  { apply Rlt_trans with (2 := E). apply Rdiv_lt_0_compat; [lra |].
    repeat (apply Rmult_lt_0_compat; try easy). }
  (* Both slopes are to be more than this share of the largest. *)
  set (a := 16 / (L * H * S * eta)).
  assert (A : 0 < a < 1).
  { assert (P : 0 < L * H * S) by (repeat (apply Rmult_lt_0_compat; try easy)).
    unfold a. split; [apply Rdiv_lt_0_compat; nra |].
    apply Rmult_lt_reg_r with (L * H * S * eta); [nra |].
    apply Rmult_lt_compat_r with (r := L * H * S) in E; [| easy].
    replace (16 / (L * H * S) * (L * H * S)) with 16 in E by (field; lra).
    replace (16 / (L * H * S * eta) * (L * H * S * eta)) with 16 by (field; lra). lra. }
  assert (share : forall M, 0 < M -> exists e, 0 < e /\
    forall x, Rabs x < e -> M / 4 * ((1 + a) / 2) < slope M x).
  { intros M MP.
    assert (E1 : 0 < M / 4 * ((1 - a) / 2)) by (apply Rmult_lt_0_compat; lra).
    destruct (slope_continuous M 0 MP _ (locally_ball _ (mkposreal _ E1))) as [e near].
    exists e. split; [apply cond_pos |]. intros x X0.
    apply Rabs_lt_between in X0.
    assert (B : ball 0 e x) by
      (apply Rabs_def1; unfold Hierarchy.minus, plus, opp; simpl; lra).
    specialize (near x B). apply Rabs_lt_between in near. simpl in near.
    unfold Hierarchy.minus, plus, opp in near. simpl in near. rewrite slope_0 in near. lra. }
  destruct (share H HP) as [e1 [E1 near1]]. destruct (share S SP) as [e2 [E2 near2]].
  set (k := 1 + eta * L * (H / 4) * (S / 4)).
  assert (KP : 1 < k).
  { unfold k. assert (0 < eta * L * (H / 4) * (S / 4)); [| lra].
    repeat apply Rmult_lt_0_compat; lra. }
  set (w := Rmin e2 (e1 / k) / 2).
  assert (W : 0 < w /\ w < e2 /\ w * k < e1).
  { assert (0 < Rmin e2 (e1 / k)) by
      (apply Rmin_glb_lt; [easy | apply Rdiv_lt_0_compat; lra]).
    pose proof (Rmin_l e2 (e1 / k)). pose proof (Rmin_r e2 (e1 / k)).
    unfold w. repeat split; try lra.
    apply Rle_lt_trans with (e1 / k / 2 * k); [apply Rmult_le_compat_r; lra |].
    replace (e1 / k / 2 * k) with (e1 / 2) by (field; lra). lra. }
  assert (half : sigma H 0 = 1 / 2).
  { unfold sigma. rewrite Rmult_0_r, Ropp_0, exp_0. lra. }
  set (v := sigma H w). set (g := L * (v - 1 / 2)).
  assert (V : 0 < v - 1 / 2 < H / 4 * w).
  { pose proof (sigma_increasing H 0 w HP ltac:(lra)).
    pose proof (moves_less H HP 0 w ltac:(lra)) as B. rewrite half, Rminus_0_r in B.
    fold v in B, H0. rewrite !Rabs_right in B by lra. lra. }
  destruct (mean_value H S eta EP g w) as [xi [X0 Q]].
  set (p := slope H xi * slope S w). exists w, p. simpl. fold v g.
  assert (Z : sigma H (step S eta g w) = v - eta * p * g).
  { rewrite (error_spec H S eta EP), Q. unfold p, v. ring. }
  split; [split; [exact Z | now exists xi] |].
  assert (GP : 0 < g < L * (H / 4 * w)).
  { unfold g. split; [apply Rmult_lt_0_compat | apply Rmult_lt_compat_l]; lra. }
  assert (small : Rabs xi < e1).
  { unfold between, step in X0. pose proof (slope_pos S w SP). pose proof (slope_le S w SP).
    assert (B : 0 <= eta * g * slope S w <= eta * (L * (H / 4 * w)) * (S / 4)).
    { split; [apply Rmult_le_pos; [apply Rmult_le_pos |]; lra |].
      apply Rmult_le_compat; try lra; [apply Rmult_le_pos; lra |].
      apply Rmult_le_compat_l; lra. }
    replace (eta * (L * (H / 4 * w)) * (S / 4)) with (w * (k - 1)) in B by (unfold k; ring).
    rewrite Rmin_right, Rmax_left in X0 by lra.
    assert (w < w * k) by nra. apply Rabs_def1; lra. }
  assert (PL : 1 < L * (eta * p)).
  { pose proof (near1 xi small) as N1.
    pose proof (near2 w ltac:(rewrite Rabs_right; lra)) as N2.
    assert (N : H / 4 * ((1 + a) / 2) * (S / 4 * ((1 + a) / 2)) < p).
    { unfold p. apply Rmult_gt_0_lt_compat; try lra.
      - apply Rmult_lt_0_compat; lra.
      - apply slope_pos. lra. }
    assert (a <= ((1 + a) / 2) ^ 2) by (pose proof (pow2_ge_0 ((1 - a) / 2)); nra).
    assert (C : H * S / 16 * a < p).
    { apply Rle_lt_trans with (2 := N).
      replace (H / 4 * ((1 + a) / 2) * (S / 4 * ((1 + a) / 2))) with
        (H * S / 16 * ((1 + a) / 2) ^ 2) by field.
      apply Rmult_le_compat_l; nra. }
    apply Rmult_lt_compat_l with (r := L * eta) in C; [| nra].
    replace (L * eta * (H * S / 16 * a)) with 1 in C by (unfold a; field; lra). lra. }
  unfold F. rewrite Z.
  replace (L / 2 * (v - eta * p * g - 1 / 2) ^ 2) with
    (L / 2 * (v - 1 / 2) ^ 2 - eta * p * g ^ 2 + L * (eta * p) * (eta * p * g ^ 2) / 2) by
    (unfold g; field).
  assert (PP : 0 < p) by (unfold p; apply Rmult_lt_0_compat; now apply slope_pos).
  assert (0 < eta * p * g ^ 2).
  { apply Rmult_lt_0_compat; [now apply Rmult_lt_0_compat | apply pow_lt; lra]. }
  nra.
Qed.

Print Assumptions descent.
Print Assumptions descent_rate.
Print Assumptions descent_sharp.
