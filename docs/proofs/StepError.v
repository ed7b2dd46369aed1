(** Claims D.lemma-4.2 and D.error-bound-sharp, (4) and (20) of docs/theory.md.

    For any H, S > 0 the step (3) of a mask v = sigma_H(w) of d entries is
    v+ = v - eta (g - r) with r = (1 - p) g and

      p_i = sigma_H'(xi_i) sigma_S'(w_i) in (0, H S / 16],

    xi_i between w_i and w_i+, so that

      |r| <= max(1, H S / 16 - 1) |g| <= (1 + H S / 16) |g|,

    where the first constant is the best one, though it is not attained.

    v+ = v - eta (g - r) defines r; the rest is proved of it. *)

From Coq Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature.
Open Scope R_scope.

(** r of one entry: v+ = v - eta (g - r). *)
Definition error (H S eta g w : R) : R :=
  g - (sigma H w - sigma H (step S eta g w)) / eta.

Definition between (x a b : R) : Prop := Rmin a b <= x <= Rmax a b.

Definition sharp (H S : R) : R := Rmax 1 (H * S / 16 - 1).

Section WithTemperatures.

Variables H S eta : R.
Hypothesis H_pos : 0 < H.
Hypothesis S_pos : 0 < S.
Hypothesis eta_pos : 0 < eta.

Notation r := (error H S eta).
Notation "w ^+ g" := (step S eta g w) (at level 30).

Lemma error_spec g w : sigma H (w ^+ g) = sigma H w - eta * (g - r g w).
Proof. unfold error. field. lra. Qed.

(** (4), by the mean value theorem. *)
Lemma mean_value g w : exists xi, between xi w (w ^+ g) /\
  r g w = (1 - slope H xi * slope S w) * g.
Proof.
  destruct (MVT_gen (sigma H) w (w ^+ g) (slope H)) as [xi [X E]].
  - intros. apply sigma_derive.
  - intros. apply continuity_pt_filterlim, sigma_continuous.
  - exists xi. split; [easy |]. unfold error.
    replace (sigma H w - sigma H (w ^+ g)) with (- (slope H xi * (w ^+ g - w))) by lra.
    unfold step. field. lra.
Qed.

Lemma factor_range xi w : 0 < slope H xi * slope S w <= H * S / 16.
Proof.
  pose proof (slope_pos H xi H_pos). pose proof (slope_le H xi H_pos).
  pose proof (slope_pos S w S_pos). pose proof (slope_le S w S_pos).
  split; [now apply Rmult_lt_0_compat |].
  replace (H * S / 16) with (H / 4 * (S / 4)) by field.
  apply Rmult_le_compat; lra.
Qed.

(** ** The bound, which is not attained *)

(** A mean slope is smaller than the largest one. *)
Lemma moves_less a b : a <> b ->
  Rabs (sigma H b - sigma H a) < H / 4 * Rabs (b - a).
Proof.
  assert (L : forall x, x <> 0 -> slope H x < H / 4).
  { intros x X. unfold slope.
    assert (1 < cosh (H * x)).
    { destruct (cosh_ge_1 (H * x)) as [C | C]; [easy |]. exfalso.
      rewrite cosh_exp in C. pose proof (exp_pos (H * x)) as E.
      assert ((exp (H * x) - 1) ^ 2 = 0).
      { apply (f_equal (fun c => 2 * c * exp (H * x))) in C.
        field_simplify in C; lra. }
      assert (exp (H * x) = exp 0) as Z.
      { rewrite exp_0. assert (exp (H * x) - 1 = 0) by
          (apply Rsqr_eq_0; unfold Rsqr; lra). lra. }
      apply exp_inv in Z. nra. }
    replace (H / 4) with (H / (2 * (1 + 1))) by field.
    apply Rmult_lt_compat_l, Rinv_lt_contravar; nra. }
  (* On one side of 0. *)
  assert (M : forall a b, a < b -> 0 <= a \/ b <= 0 ->
    sigma H b - sigma H a < H / 4 * (b - a)).
  { intros x y XY Z.
    destruct (MVT_cor2 (sigma H) (slope H) x y XY) as [xi [E X]].
    - intros. apply is_derive_Reals, sigma_derive.
    - rewrite E. apply Rmult_lt_compat_r; [lra |]. apply L. intro. lra. }
  assert (N : forall a b, a < b -> sigma H b - sigma H a < H / 4 * (b - a)).
  { intros x y XY. destruct (Rle_or_lt 0 x) as [X | X]; [apply M; tauto |].
    destruct (Rle_or_lt y 0) as [Y | Y]; [apply M; tauto |].
    pose proof (M x 0 X ltac:(lra)). pose proof (M 0 y Y ltac:(lra)). lra. }
  intro AB. destruct (Rlt_or_le a b) as [L' | L'].
  - pose proof (sigma_increasing H a b H_pos L'). rewrite !Rabs_right by lra. now apply N.
  - assert (L'' : b < a) by lra. pose proof (sigma_increasing H b a H_pos L'').
    rewrite !Rabs_left by lra. pose proof (N b a L''). lra.
Qed.

Lemma error_lt g w : g <> 0 -> Rabs (r g w) < sharp H S * Rabs g.
Proof.
  intro G. destruct (mean_value g w) as [xi [_ E]].
  pose proof (factor_range xi w) as [P _].
  assert (P' : slope H xi * slope S w < H * S / 16).
  { pose proof (slope_pos S w S_pos) as SW. pose proof (slope_le S w S_pos).
    assert (N : w <> w ^+ g).
    { unfold step. intro C. assert (Z : eta * slope S w * g = 0) by lra.
      apply Rmult_integral in Z as [Z | Z]; [nra | easy]. }
    pose proof (moves_less w (w ^+ g) N) as L.
    replace (sigma H (w ^+ g) - sigma H w) with
      (- (eta * (slope H xi * slope S w)) * g) in L by (rewrite error_spec, E; ring).
    replace (w ^+ g - w) with (- (eta * slope S w) * g) in L by (unfold step; ring).
    rewrite !Rabs_mult, !Rabs_Ropp, !(Rabs_right (_ * _)) in L by nra.
    assert (eta * (slope H xi * slope S w) < H / 4 * (eta * slope S w)).
    { apply Rmult_lt_reg_r with (Rabs g); [now apply Rabs_pos_lt | lra]. }
    assert (slope H xi * slope S w < H / 4 * slope S w).
    { apply Rmult_lt_reg_l with eta; [easy | lra]. }
    nra. }
  rewrite E, Rabs_mult. apply Rmult_lt_compat_r; [now apply Rabs_pos_lt |].
  unfold sharp. apply Rmax_case_strong; intro; apply Rabs_def1; lra.
Qed.

Lemma sharp_ge_1 : 1 <= sharp H S.
Proof. apply Rmax_l. Qed.

Lemma error_le g w : Rabs (r g w) <= sharp H S * Rabs g.
Proof.
  destruct (Req_dec g 0) as [-> | G]; [| left; now apply error_lt].
  destruct (mean_value 0 w) as [xi [_ E]]. rewrite E, Rmult_0_r, Rabs_R0. lra.
Qed.

Lemma squares_of_entries g w : r g w ^ 2 <= sharp H S ^ 2 * g ^ 2.
Proof.
  rewrite <- !(pow2_abs (r g w)), <- (pow2_abs g), <- Rpow_mult_distr.
  apply pow_incr. split; [apply Rabs_pos | apply error_le].
Qed.

Lemma squares_of_entries_lt g w : g <> 0 -> r g w ^ 2 < sharp H S ^ 2 * g ^ 2.
Proof.
  intro G. rewrite <- !(pow2_abs (r g w)), <- (pow2_abs g), <- Rpow_mult_distr.
  pose proof (error_lt g w G). pose proof (Rabs_pos (r g w)). nra.
Qed.

(** ** No smaller constant will do *)

Lemma best_when_saturated C : C < 1 -> exists w, C < Rabs (r 1 w).
Proof.
  intro C1.
  assert (L : exists w, H / 4 * slope S w < 1 - C).
  { exists (ln (Rmax 1 (H * S / (1 - C))) / S).
    set (m := Rmax 1 (H * S / (1 - C))).
    assert (M : 1 <= m) by apply Rmax_l.
    assert (M' : H * S / (1 - C) <= m) by apply Rmax_r.
    assert (M'' : H * S <= m * (1 - C)).
    { apply Rmult_le_reg_r with (/ (1 - C)); [apply Rinv_0_lt_compat; lra |].
      field_simplify; [field_simplify in M'; lra | lra | lra]. }
    unfold slope. replace (S * (ln m / S)) with (ln m) by (field; lra).
    rewrite cosh_exp, exp_ln by lra.
    assert (0 < / m) by (apply Rinv_0_lt_compat; lra).
    apply Rmult_lt_reg_r with (2 * (1 + (m + / m) / 2)); [lra |].
    replace (H / 4 * (S / (2 * (1 + (m + / m) / 2))) * (2 * (1 + (m + / m) / 2)))
      with (H * S / 4) by (field; split; nra).
    nra. }
  destruct L as [w L]. exists w. destruct (mean_value 1 w) as [xi [_ E]].
  pose proof (slope_pos S w S_pos). pose proof (slope_le H xi H_pos).
  assert (slope H xi * slope S w <= H / 4 * slope S w) by (apply Rmult_le_compat_r; lra).
  rewrite E. eapply Rlt_le_trans; [| apply Rle_abs]. lra.
Qed.

Lemma best_at_0 C : C < H * S / 16 - 1 -> exists g, g <> 0 /\ C * Rabs g < Rabs (r g 0).
Proof.
  intro C1.
  set (gap := H * S / 16 - 1 - C).
  (* Near 0 the slope is nearly H/4. *)
  assert (E : 0 < 4 / S * gap) by
    (apply Rmult_lt_0_compat; [apply Rdiv_lt_0_compat |]; unfold gap; lra).
  destruct (slope_continuous H 0 H_pos (ball (slope H 0) (mkposreal _ E))
    (locally_ball _ _)) as [e near].
  pose proof (cond_pos e) as EP.
  set (g := 2 * e / (eta * S)).
  assert (G : 0 < g) by (unfold g; apply Rdiv_lt_0_compat; nra).
  exists g. split; [lra |]. destruct (mean_value g 0) as [xi [X Q]].
  assert (B : ball 0 e xi).
  { unfold between, step in X. rewrite slope_0 in X.
    replace (0 - eta * g * (S / 4)) with (- (e / 2)) in X by (unfold g; field; lra).
    rewrite Rmin_right, Rmax_left in X by lra.
    apply Rabs_def1; unfold minus, plus, opp; simpl; lra. }
  specialize (near xi B). apply Rabs_lt_between in near. simpl in near.
  unfold minus, plus, opp in near. simpl in near. rewrite slope_0 in near.
  rewrite Q, slope_0, Rabs_mult. apply Rmult_lt_compat_r; [apply Rabs_pos_lt; lra |].
  rewrite <- Rabs_Ropp. eapply Rlt_le_trans; [| apply Rle_abs].
  assert (S / 4 * (H / 4 - slope H xi) < S / 4 * (4 / S * gap)) by
    (apply Rmult_lt_compat_l; lra).
  replace (S / 4 * (4 / S * gap)) with gap in H0 by (field; lra).
  unfold gap in H0. lra.
Qed.

End WithTemperatures.

(** * The lemma *)

Theorem step_error (d : nat) (H S eta : R) (g w : nat -> R) :
  0 < H -> 0 < S -> 0 < eta ->
  let r i := error H S eta (g i) (w i) in
  (forall i,
    sigma H (step S eta (g i) (w i)) = sigma H (w i) - eta * (g i - r i) /\
    exists xi p, between xi (w i) (step S eta (g i) (w i)) /\
      p = slope H xi * slope S (w i) /\ 0 < p <= H * S / 16 /\
      r i = (1 - p) * g i) /\
  norm d r <= Rmax 1 (H * S / 16 - 1) * norm d g /\
  Rmax 1 (H * S / 16 - 1) * norm d g <= (1 + H * S / 16) * norm d g.
Proof.
  intros HP SP EP r. repeat split.
  - now apply error_spec.
  - destruct (mean_value H S eta EP (g i) (w i)) as [xi [X E]].
    exists xi, (slope H xi * slope S (w i)).
    pose proof (factor_range H S HP SP xi (w i)). tauto.
  - rewrite <- norm_scal by (pose proof (Rmax_l 1 (H * S / 16 - 1)); lra).
    apply sqrt_le_1_alt, total_le. intros. now apply squares_of_entries.
  - apply Rmult_le_compat_r; [apply sqrt_pos |]. apply Rmax_lub; nra.
Qed.

(** The constant is not attained. *)
Theorem not_attained (d : nat) (H S eta : R) (g w : nat -> R) :
  0 < H -> 0 < S -> 0 < eta -> (exists i, (1 <= i <= d)%nat /\ g i <> 0) ->
  norm d (fun i => error H S eta (g i) (w i)) < Rmax 1 (H * S / 16 - 1) * norm d g.
Proof.
  intros HP SP EP [i [I G]].
  rewrite <- norm_scal by (pose proof (Rmax_l 1 (H * S / 16 - 1)); lra).
  apply sqrt_lt_1_alt. split; [apply total_nonneg; intro; apply pow2_ge_0 |].
  apply total_lt; [intros; now apply squares_of_entries |].
  exists i. split; [easy | now apply squares_of_entries_lt].
Qed.

(** It is the best one, at any temperatures and any rate, with one entry. *)
Theorem best_constant (H S eta C : R) : 0 < H -> 0 < S -> 0 < eta ->
  (forall g w : nat -> R,
    norm 1 (fun i => error H S eta (g i) (w i)) <= C * norm 1 g) ->
  Rmax 1 (H * S / 16 - 1) <= C.
Proof.
  intros HP SP EP A.
  assert (A' : forall g w, Rabs (error H S eta g w) <= C * Rabs g).
  { intros g w. specialize (A (fun _ => g) (fun _ => w)). revert A.
    unfold norm, total. rewrite !sum_n_n, <- !Rsqr_pow2, !sqrt_Rsqr_abs. easy. }
  apply Rmax_lub; apply Rnot_lt_le; intro L.
  - destruct (best_when_saturated H S eta HP SP EP C L) as [w W].
    specialize (A' 1 w). rewrite Rabs_R1 in A'. lra.
  - destruct (best_at_0 H S eta HP SP EP C L) as [g [_ G]]. specialize (A' g 0). lra.
Qed.

Print Assumptions step_error.
Print Assumptions not_attained.
Print Assumptions best_constant.
