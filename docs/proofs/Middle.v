(** Claim two-temperature.vertex-distance, (9) of docs/theory.md.

    From the middle of the cube, if S < H, with rho = S / H,

      D(u, 1/2) <= 2 d A / (H S),    A = log 2 + I(rho),
      I(rho) = int_0^oo cosh(rho x) / (1 + e^x) dx,

    for every u in [0, 1]^d, with equality at the vertices. The series of I in
    digamma functions and its values are not proved. If S = H,

      H^2 D(1 - eps, 1/2) = (1 - 2 eps) log((1 - eps) / eps). *)

From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence Regret VertexDistance.
Open Scope R_scope.

Definition I_of (rho : R) : R :=
  RInt_gen (fun x => cosh (rho * x) / (1 + exp x)) (at_point 0) (Rbar_locally p_infty).

Lemma half_line :
  is_RInt_gen (fun x => 1 / (1 + exp x)) (at_point 0) (Rbar_locally p_infty) (ln 2).
Proof.
  set (k x := - ln (1 + exp (- x))).
  assert (KD : forall x, is_derive k x (1 / (1 + exp x))).
  { intro x. unfold k. pose proof (exp_pos (- x)). pose proof (exp_pos x).
    auto_derive; [lra |]. rewrite exp_Ropp in *. field. lra. }
  apply (is_RInt_gen_ext (Derive k)).
  { apply filter_forall. intros ab x _. apply is_derive_unique, KD. }
  replace (ln 2) with (0 - k 0).
  2: { unfold k. rewrite Ropp_0, exp_0. replace (1 + 1) with 2 by ring. ring. }
  apply is_RInt_gen_Derive.
  - apply filter_forall. intros ab x _. eexists. apply KD.
  - apply filter_forall. intros ab x _.
    apply continuous_ext with (fun x => 1 / (1 + exp x)).
    { intro y. symmetry. apply is_derive_unique, KD. }
    apply @ex_derive_continuous. auto_derive. pose proof (exp_pos x). lra.
  - intros P [e E]. apply E, ball_center.
  - (* log(1 + e^-x) <= e^-x <= 1 / x *)
    intros P [e E]. exists (/ e). intros x X. apply E. pose proof (cond_pos e).
    assert (0 < / e) by (now apply Rinv_0_lt_compat).
    pose proof (exp_ineq1 x ltac:(lra)). pose proof (exp_pos (- x)).
    assert (exp (- x) < e).
    { rewrite exp_Ropp, <- (Rinv_inv e). apply Rinv_lt_contravar; [| lra].
      apply Rmult_lt_0_compat; lra. }
    assert (L : 0 < ln (1 + exp (- x)) <= exp (- x)).
    { split; [rewrite <- ln_1; apply ln_increasing; lra |].
      rewrite <- (ln_exp (exp (- x))) at 2. apply ln_le; [lra |].
      left. apply exp_ineq1. lra. }
    apply Rabs_def1; unfold k, minus, plus, opp; simpl; lra.
Qed.

Section WithTemperatures.

Variables H S : R.
Hypothesis S_pos : 0 < S.
Hypothesis S_lt : S < H.

Let H_pos : 0 < H.
Proof. lra. Qed.

Lemma middle_is_0 : sigma H 0 = 1 / 2.
Proof. unfold sigma. rewrite Rmult_0_r, Ropp_0, exp_0. lra. Qed.

Lemma I_value :
  is_RInt_gen (fun x => cosh (S / H * x) / (1 + exp x)) (at_point 0) (Rbar_locally p_infty)
    (H * S / 2 * D H S 1 (1 / 2) - ln 2).
Proof.
  pose proof (distance_to_1 H S S_pos ltac:(lra) 0 S_lt) as L.
  rewrite Rmult_0_r, middle_is_0 in L.
  apply (is_RInt_gen_ext (fun x => minus
    ((1 + cosh (S / H * x)) / (1 + exp x)) (1 / (1 + exp x)))).
  - apply filter_forall. intros ab x _. unfold minus, plus, opp; simpl.
    pose proof (exp_pos x). field. lra.
  - apply @is_RInt_gen_minus; try typeclasses eauto; [exact L | exact half_line].
Qed.

Lemma I_unique : I_of (S / H) = H * S / 2 * D H S 1 (1 / 2) - ln 2.
Proof. unfold I_of. apply @is_RInt_gen_unique; try typeclasses eauto. exact I_value. Qed.

Lemma at_a_vertex : D H S 1 (1 / 2) = 2 * (ln 2 + I_of (S / H)) / (H * S).
Proof. rewrite I_unique. field. lra. Qed.

Lemma at_the_other : D H S 0 (1 / 2) = D H S 1 (1 / 2).
Proof.
  rewrite <- middle_is_0, (distance_to_0 H S S_pos ltac:(lra) 0 S_lt). now rewrite Ropp_0.
Qed.

Lemma farthest u : 0 <= u <= 1 -> D H S u (1 / 2) <= D H S 1 (1 / 2).
Proof.
  intro U. assert (F : forall x, 0 <= x <= 1 -> finite H S x) by (intros; split; lra).
  destruct (Req_dec u 0) as [-> | U0]; [rewrite at_the_other; lra |].
  destruct (Req_dec u 1) as [-> | U1]; [lra |].
  assert (J : inside u) by (unfold inside; lra).
  pose proof middle as M.
  assert (X : forall y, ex_RInt (integrand H S y) (1 / 2) u) by
    (intro; apply integrable; easy).
  assert (Du : D H S u (1 / 2) = RInt (integrand H S u) (1 / 2) u).
  { pose proof (near_a_mask_entry u U). unfold D. fold (integrand H S u).
    apply @is_RInt_gen_unique; try typeclasses eauto. now apply finite_inside. }
  rewrite Du. destruct (Rle_or_lt (1 / 2) u) as [C | C].
  - rewrite (divergence_moves H S H_pos S_pos 1 (1 / 2) u ltac:(lra) (F 1 ltac:(lra)) M J).
    pose proof (divergence_nonneg H S 1 u ltac:(lra) (F 1 ltac:(lra)) J).
    assert (RInt (integrand H S u) (1 / 2) u <= RInt (integrand H S 1) (1 / 2) u); [| lra].
    apply RInt_le; [easy | apply X | apply X |].
    intros x _. unfold integrand. apply Rmult_le_compat_r; [left; now apply h''_pos | lra].
  - rewrite <- at_the_other.
    rewrite (divergence_moves H S H_pos S_pos 0 (1 / 2) u ltac:(lra) (F 0 ltac:(lra)) M J).
    pose proof (divergence_nonneg H S 0 u ltac:(lra) (F 0 ltac:(lra)) J).
    assert (RInt (integrand H S u) (1 / 2) u <= RInt (integrand H S 0) (1 / 2) u); [| lra].
    rewrite <- (opp_RInt_swap (integrand H S u)), <- (opp_RInt_swap (integrand H S 0)) by
      (apply integrable; easy).
    unfold opp; simpl. apply Ropp_le_contravar.
    apply RInt_le; [lra | apply integrable; easy | apply integrable; easy |].
    intros x _. unfold integrand. apply Rmult_le_compat_r; [left; now apply h''_pos | lra].
Qed.

End WithTemperatures.

Lemma total_const n c : total n (fun _ => c) = INR n * c.
Proof.
  induction n as [| n I]; [rewrite total_0; simpl; ring |].
  rewrite total_S, I, S_INR. ring.
Qed.

Theorem I_exists (H S : R) : 0 < S < H ->
  is_RInt_gen (fun x => cosh (S / H * x) / (1 + exp x)) (at_point 0) (Rbar_locally p_infty)
    (I_of (S / H)).
Proof. intro. rewrite I_unique by lra. apply I_value; lra. Qed.

Theorem from_the_middle (d : nat) (H S : R) (u : nat -> R) : 0 < S < H ->
  (forall i, (1 <= i <= d)%nat -> 0 <= u i <= 1) ->
  let bound := 2 * INR d * (ln 2 + I_of (S / H)) / (H * S) in
  divergence d H S u (fun _ => 1 / 2) <= bound /\
  ((forall i, (1 <= i <= d)%nat -> u i = 0 \/ u i = 1) ->
    divergence d H S u (fun _ => 1 / 2) = bound).
Proof.
  intros T U bound.
  assert (B : bound = total d (fun _ => D H S 1 (1 / 2))).
  { rewrite total_const, at_a_vertex by lra. unfold bound. field. lra. }
  rewrite B. unfold divergence. split.
  - apply total_le. intros i I. apply farthest; try lra. now apply U.
  - intro V. apply Rle_antisym; apply total_le; intros i I.
    + apply farthest; try lra. now apply U.
    + destruct (V i I) as [-> | ->]; [rewrite at_the_other by lra |]; apply Rle_refl.
Qed.

Theorem at_equal_temperatures (H eps : R) : 0 < H -> inside eps ->
  H ^ 2 * D H H (1 - eps) (1 / 2) = (1 - 2 * eps) * ln ((1 - eps) / eps).
Proof.
  intros HP I. set (u := 1 - eps).
  assert (U : inside u) by (unfold u, inside in *; lra).
  assert (Du : D H H u (1 / 2) = RInt (integrand H H u) (1 / 2) u).
  { pose proof (near_a_mask_entry u ltac:(unfold inside in U; lra)).
    unfold D. fold (integrand H H u).
    apply @is_RInt_gen_unique; try typeclasses eauto. apply finite_inside; try easy. apply middle. }
  rewrite Du.
  set (q x := 2 * (ln x - ln (1 - x)) + / (1 - x) - / x).
  set (k x := (2 * x - 1) * (ln x - ln (1 - x))).
  set (A x := ((u - x) * q x + k x) / H ^ 2).
  assert (AD : forall x, inside x -> is_derive A x (integrand H H u x)).
  { intros x X. unfold inside in X. unfold A, q, k. evar_last.
    { auto_derive; [repeat split; lra | reflexivity]. }
    unfold integrand, h''. rewrite slope_sigma, sigma_score by easy. field. lra. }
  assert (Z : RInt (integrand H H u) (1 / 2) u = A u - A (1 / 2)).
  { apply is_RInt_unique.
    apply (is_RInt_derive A (integrand H H u)).
    - intros x X. apply AD. unfold inside, Rmin, Rmax in *. destruct Rle_dec; lra.
    - intros x X. apply integrand_continuous; try easy.
      unfold inside, Rmin, Rmax in *. destruct Rle_dec; lra. }
  rewrite Z. unfold A, q, k.
  replace (1 - 1 / 2) with (1 / 2) by field.
  unfold inside in *. rewrite (ln_div u eps), (ln_div 1 2) by lra.
  replace (1 - u) with eps by (unfold u; ring).
  replace (2 * u - 1) with (1 - 2 * eps) by (unfold u; ring). field. lra.
Qed.

Print Assumptions I_exists.
Print Assumptions from_the_middle.
Print Assumptions at_equal_temperatures.
