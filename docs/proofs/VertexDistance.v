(** Claims two-temperature.vertex-distance and two-temperature.strong-convexity:
    (5), (7), (8) and (10) of docs/theory.md.

    The distance of a mask entry sigma_H(w) to 1 is, for 0 < S < H and
    rho = S / H,

      D(1, sigma_H(w)) = 2 / (H S) int_{H w}^oo (1 + cosh(rho x)) / (1 + e^x) dx,
      D(0, sigma_H(w)) = D(1, sigma_H(- w)),                              (8)

    and for S <= H both are finite if and only if S < H. For S < H and eps in
    (0, 1), with l = log((1 - eps) / eps),

      D(1, eps) - D(0, eps) = 2 / (H S) (l + sinh(rho l) / rho),          (10)

    and D(0, eps) tends to 0 as eps does.

    The potential h, with h'(v) = theta(w) at v = sigma_H(w), has the second
    derivative of (5), and with l = log(v / (1 - v))

      H S h'(v) = 2 (l + sinh(rho l) / rho).                              (7)

    It is strongly convex, h'' >= 16 / (H S), with equality at v = 1/2 only.
    (On the page eps < 1/2 in (10); that is not needed.) *)

From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence ReadOff.
Open Scope R_scope.

Lemma sigma_opp M w : sigma M (- w) = 1 - sigma M w.
Proof.
  unfold sigma. rewrite <- Ropp_mult_distr_r, !exp_Ropp, Rinv_inv.
  pose proof (exp_pos (M * w)) as E. pose proof (Rinv_0_lt_compat _ E). field. lra.
Qed.

Definition integrand_of_8 (rho x : R) : R := (1 + cosh (rho * x)) / (1 + exp x).

Section WithTemperatures.

Variables H S : R.
Hypothesis S_pos : 0 < S.
Hypothesis S_le : S <= H.

Lemma H_pos : 0 < H.
Proof. lra. Qed.

Notation f := (integrand H S).
Notation j := (integrand_of_8 (S / H)).

(** * The mask entry in units of 1 / H *)

Definition entry (y : R) : R := sigma H (y / H).

Lemma entry_derive y : is_derive entry y (slope H (y / H) / H).
Proof.
  evar_last.
  { apply (is_derive_comp (sigma H) (fun y => y / H)); [apply sigma_derive |].
    auto_derive; [easy | reflexivity]. }
  unfold scal; simpl. unfold mult; simpl. field. pose proof H_pos. lra.
Qed.

Lemma entry_continuous y : continuous entry y.
Proof. apply @ex_derive_continuous. eexists. apply entry_derive. Qed.

Lemma entry_to_1 : filterlim entry (Rbar_locally p_infty) (within inside (locally 1)).
Proof.
  intros P [e E]. exists (/ e). intros y Y.
  assert (I : inside (entry y)) by apply sigma_inside.
  apply E; [| exact I]. pose proof (cond_pos e).
  apply Rabs_def1; unfold minus, plus, opp; simpl; unfold inside in I; [lra |].
  unfold entry, sigma. replace (H * (y / H)) with y by (field; pose proof H_pos; lra).
  assert (0 < / e) by (now apply Rinv_0_lt_compat).
  pose proof (exp_ineq1 y ltac:(lra)).
  assert (exp (- y) < e).
  { rewrite exp_Ropp, <- (Rinv_inv e). apply Rinv_lt_contravar; [nra | lra]. }
  pose proof (exp_pos (- y)).
  assert (/ (1 + exp (- y)) >= 1 - exp (- y)); [| lra].
  apply Rle_ge, Rmult_le_reg_r with (1 + exp (- y)); [lra |]. field_simplify; nra.
Qed.

Lemma j_continuous x : continuous j x.
Proof.
  apply @ex_derive_continuous. unfold integrand_of_8, cosh.
  auto_derive. pose proof (exp_pos x). lra.
Qed.

Lemma substituted a b : RInt (f 1) (entry a) (entry b) = 2 / (H * S) * RInt j a b.
Proof.
  pose proof H_pos.
  change (2 / (H * S) * RInt j a b) with (scal (2 / (H * S)) (RInt j a b)).
  rewrite <- (RInt_scal j a b (2 / (H * S))).
  2: { apply @ex_RInt_continuous. intros. apply j_continuous. }
  rewrite <- (RInt_comp (f 1) entry (fun y => slope H (y / H) / H) a b).
  - apply RInt_ext. intros x _. unfold scal; simpl. unfold mult; simpl.
    unfold integrand, entry. rewrite h''_sigma by easy.
    pose proof (slope_pos H (x / H) H0). pose proof (slope_pos S (x / H) S_pos).
    replace (slope H (x / H) / H *
      ((1 - sigma H (x / H)) * (1 / (slope H (x / H) * slope S (x / H)))))
      with ((1 - sigma H (x / H)) / (H * slope S (x / H))) by (field; lra).
    unfold integrand_of_8, sigma, slope.
    replace (H * (x / H)) with x by (field; lra).
    replace (S * (x / H)) with (S / H * x) by (field; lra).
    rewrite exp_Ropp. pose proof (exp_pos x). pose proof (cosh_ge_1 (S / H * x)).
    field. repeat split; lra.
  - intros. apply integrand_continuous; try easy. apply sigma_inside.
  - intros. split; [apply entry_derive |].
    apply continuous_ext with (fun y => scal (/ H) (slope H (y / H))).
    { intro. unfold scal; simpl. unfold mult; simpl. unfold Rdiv. ring. }
    apply @continuous_scal_r, continuous_comp; [| now apply slope_continuous].
    apply @ex_derive_continuous. auto_derive. easy.
Qed.

Lemma entry_score w : entry (H * w) = sigma H w.
Proof. unfold entry. f_equal. field. pose proof H_pos. lra. Qed.

(** * (8) *)

Theorem distance_to_1 w : S < H ->
  is_RInt_gen (fun x => (1 + cosh (S / H * x)) / (1 + exp x))
    (at_point (H * w)) (Rbar_locally p_infty) (H * S / 2 * D H S 1 (sigma H w)).
Proof.
  intros SH P [e E]. pose proof H_pos.
  assert (F : finite H S 1) by (split; lra).
  pose proof (divergence_exists H S H_pos S_pos 1 (sigma H w) S_le F (sigma_inside H w)) as L.
  assert (E' : 0 < 2 / (H * S) * e).
  { apply Rmult_lt_0_compat; [apply Rdiv_lt_0_compat; nra | apply cond_pos]. }
  destruct (L _ (locally_ball _ (mkposreal _ E'))) as [A B HA HB near].
  apply Filter_prod with (fun a => a = H * w) (fun y => B (entry y)).
  - easy.
  - exact (entry_to_1 B HB).
  - intros a b -> By. simpl. exists (RInt j (H * w) b). split.
    { apply @RInt_correct, @ex_RInt_continuous. intros. apply j_continuous. }
    apply E. destruct (near (sigma H w) (entry b) HA By) as [z [I Z]]. simpl in I.
    apply (is_RInt_unique (f 1)) in I.
    rewrite <- (entry_score w), substituted in I. subst z.
    apply Rabs_lt_between in Z. simpl in Z. unfold minus, plus, opp in Z. simpl in Z.
    apply Rabs_def1; unfold minus, plus, opp; simpl.
    + apply Rmult_lt_reg_l with (2 / (H * S)); [apply Rdiv_lt_0_compat; nra |].
      replace (2 / (H * S) * (RInt j (H * w) b + - (H * S / 2 * D H S 1 (sigma H w))))
        with (2 / (H * S) * RInt j (H * w) b - D H S 1 (sigma H w)) by (field; lra).
      lra.
    + apply Rmult_lt_reg_l with (2 / (H * S)); [apply Rdiv_lt_0_compat; nra |].
      replace (2 / (H * S) * (RInt j (H * w) b + - (H * S / 2 * D H S 1 (sigma H w))))
        with (2 / (H * S) * RInt j (H * w) b - D H S 1 (sigma H w)) by (field; lra).
      lra.
Qed.

Lemma exchanged v y : inside v -> inside y ->
  RInt (f 0) v y = RInt (f 1) (1 - v) (1 - y).
Proof.
  intros V Y. pose proof H_pos.
  rewrite <- (RInt_Chasles (f 0) v (1 / 2) y), <- (RInt_Chasles (f 1) (1 - v) (1 / 2) (1 - y));
    try (apply integrable; unfold inside in *; lra).
  rewrite (integral_exchanged H S H0 S_pos y Y). f_equal.
  rewrite <- (opp_RInt_swap (f 0)), <- (opp_RInt_swap (f 1));
    try (apply integrable; unfold inside in *; lra).
  now rewrite (integral_exchanged H S H0 S_pos v V).
Qed.

Theorem distance_to_0 w : S < H -> D H S 0 (sigma H w) = D H S 1 (sigma H (- w)).
Proof.
  intro SH. pose proof H_pos. rewrite sigma_opp. set (v := sigma H w).
  assert (V : inside v) by apply sigma_inside.
  assert (V' : inside (1 - v)) by (unfold inside in *; lra).
  pose proof (near_a_mask_entry 0 ltac:(lra)).
  apply @is_RInt_gen_unique; try typeclasses eauto.
  apply improper; try easy. intro eps.
  assert (F : finite H S 1) by (split; lra).
  pose proof (divergence_exists H S H_pos S_pos 1 (1 - v) S_le F V') as L.
  destruct (L _ (locally_ball _ eps)) as [A B HA [e HB] near].
  exists e. intros y Y I. rewrite exchanged by easy.
  assert (By : B (1 - y)).
  { apply HB; [| unfold inside in *; lra].
    apply Rabs_lt_between in Y. simpl in Y. unfold minus, plus, opp in Y. simpl in Y.
    apply Rabs_def1; unfold minus, plus, opp; simpl; lra. }
  destruct (near _ _ HA By) as [z [Iz Z]]. simpl in Iz.
  apply (is_RInt_unique (f 1)) in Iz. now rewrite Iz.
Qed.

(** * Finite if and only if soft is softer than hard *)

Theorem finite_iff v : inside v ->
  (exists l, is_RInt_gen (fun x => (1 - x) * h'' H S x)
    (at_point v) (within inside (locally 1)) l) <-> S < H.
Proof.
  intro V. pose proof H_pos. split.
  - intros [l L]. destruct S_le as [SH | SH]; [easy |]. exfalso.
    destruct (L _ (locally_ball l (mkposreal 1 Rlt_0_1))) as [A B HA HB near].
    destruct (entry_to_1 B HB) as [M far].
    set (w := score H v). set (t := Rmax (M / H + 1) (w + H * (Rabs l + 2))).
    assert (T1 : M / H + 1 <= t) by apply Rmax_l.
    assert (T2 : w + H * (Rabs l + 2) <= t) by apply Rmax_r.
    assert (By : B (sigma H t)).
    { rewrite <- entry_score. apply far.
      apply Rlt_le_trans with (H * (M / H + 1)); [| apply Rmult_le_compat_l; lra].
      replace (H * (M / H + 1)) with (M + H) by (field; lra). lra. }
    destruct (near _ _ HA By) as [z [I Z]]. simpl in I.
    apply (is_RInt_unique (f 1)) in I.
    assert (W : w <= t) by (pose proof (Rabs_pos l); nra).
    destruct (MVT_gen (fun w => RInt (f 1) v (sigma H w)) w t
      (fun w => (1 - sigma H w) / slope S w)) as [c [C E]].
    + intros. now apply integral_of_score_derive.
    + intros. apply continuity_pt_filterlim. change (fun w => _) with
        (fun w => RInt (f 1) v (sigma H w)).
      eapply (@ex_derive_continuous _ _ (fun w => RInt (f 1) v (sigma H w))).
      eexists. now apply integral_of_score_derive.
    + assert (back : sigma H w = v) by now apply sigma_score.
      simpl in E. rewrite back, RInt_point, I in E. unfold zero in E; simpl in E.
      assert (/ H <= (1 - sigma H c) / slope S c).
      { rewrite SH, slope_sigma. pose proof (sigma_inside H c) as J. unfold inside in J.
        replace ((1 - sigma H c) / (H * sigma H c * (1 - sigma H c))) with
          (/ (H * sigma H c)) by (field; lra).
        apply Rinv_le_contravar; nra. }
      assert (/ H * (t - w) <= z) by (rewrite Rminus_0_r in E; rewrite E; nra).
      assert (Rabs l + 2 <= / H * (t - w)).
      { apply Rmult_le_reg_l with H; [easy |]. rewrite <- Rmult_assoc, Rinv_r; lra. }
      apply Rabs_lt_between in Z. simpl in Z. unfold minus, plus, opp in Z. simpl in Z.
      pose proof (Rle_abs l). lra.
  - intro SH. exists (D H S 1 v). apply divergence_exists; try easy. split; lra.
Qed.

(** The same of the other vertex, where (8) is no equation of numbers. *)
Theorem finite_iff_0 v : inside v ->
  (exists l, is_RInt_gen (fun x => (0 - x) * h'' H S x)
    (at_point v) (within inside (locally 0)) l) <-> S < H.
Proof.
  intro V. pose proof H_pos as HP.
  assert (V' : inside (1 - v)) by (unfold inside in *; lra).
  split.
  - intros [l L]. apply (finite_iff (1 - v) V'). exists l.
    pose proof (near_a_mask_entry 1 ltac:(lra)).
    apply (improper H S HP S_pos 1 (1 - v) l V'). intro eps.
    destruct (L _ (locally_ball l eps)) as [A B HA [e HB] near].
    exists e. intros y Y I.
    assert (I' : inside (1 - y)) by (unfold inside in *; lra).
    assert (By : B (1 - y)).
    { apply HB; [| easy].
      apply Rabs_lt_between in Y. simpl in Y. unfold minus, plus, opp in Y. simpl in Y.
      apply Rabs_def1; unfold minus, plus, opp; simpl; lra. }
    destruct (near v (1 - y) HA By) as [z [Iz Z]]. simpl in Iz.
    apply (is_RInt_unique (f 0)) in Iz.
    rewrite (exchanged v (1 - y) V I') in Iz.
    assert (Q : forall r : R, 1 - (1 - r) = r) by (intro; ring).
    rewrite (Q y) in Iz. rewrite Iz. exact Z.
  - intro SH. exists (D H S 0 v). apply divergence_exists; try easy. split; lra.
Qed.

(** * (10) *)

Theorem between_the_corners eps : S < H -> inside eps ->
  let l := ln ((1 - eps) / eps) in
  D H S 1 eps - D H S 0 eps = 2 / (H * S) * (l + sinh (S / H * l) / (S / H)).
Proof.
  intros SH I l. pose proof H_pos.
  set (G w := D H S 1 (sigma H w) - D H S 0 (sigma H w) + theta S w).
  assert (GD : forall w, is_derive G w 0).
  { intro w. unfold G. evar_last.
    { apply @is_derive_plus; [apply @is_derive_minus |].
      - apply divergence_derive; try easy. split; lra.
      - apply divergence_derive; try easy. split; lra.
      - now apply theta_derive. }
    unfold minus, plus, opp; simpl. field. pose proof (slope_pos S w S_pos). lra. }
  assert (G0 : G 0 = 0).
  { unfold G. rewrite distance_to_0, Ropp_0, theta_0 by easy. ring. }
  assert (C : forall w, G w = 0).
  { intro w. destruct (MVT_gen G 0 w (fun _ => 0)) as [c [_ E]].
    - intros. apply GD.
    - intros. apply continuity_pt_filterlim.
      apply (@ex_derive_continuous _ _ G). eexists. apply GD.
    - simpl in E. lra. }
  specialize (C (score H eps)). unfold G in C. rewrite sigma_score in C by easy.
  assert (W : score H eps = - (l / H)).
  { unfold score, l, inside in *. replace (eps / (1 - eps)) with (/ ((1 - eps) / eps)) by (field; lra).
    rewrite ln_Rinv by (apply Rdiv_lt_0_compat; lra). field. lra. }
  rewrite W, theta_odd, theta_bracket in C by easy. unfold bracket in C. lra.
Qed.

(** The other corner is near then. *)
Theorem vanishing_at_a_corner : S < H ->
  filterlim (D H S 0) (within inside (locally 0)) (locally 0).
Proof.
  intros SH P [e E]. pose proof H_pos as HP.
  assert (F : finite H S 0) by (split; lra).
  pose proof (divergence_exists H S HP S_pos 0 (1 / 2) S_le F middle) as L.
  destruct (L _ (locally_ball _ e)) as [A B HA HB near].
  unfold filtermap, within in *. revert HB. apply filter_imp.
  { intros y Y I. pose proof (Y I) as By. apply E.
    destruct (near (1 / 2) y HA By) as [z [Iz Z]]. simpl in Iz.
    apply (is_RInt_unique (f 0)) in Iz.
    pose proof (divergence_moves H S HP S_pos 0 (1 / 2) y S_le F middle I) as M.
    rewrite Iz in M. rewrite M in Z.
    apply Rabs_lt_between in Z. simpl in Z. unfold minus, plus, opp in Z. simpl in Z.
    apply Rabs_def1; unfold minus, plus, opp; simpl; lra. }
Qed.

(** * The potential *)

(** With h'(v) = theta(w) at v = sigma_H(w): [h''] is its derivative, and (7). *)
Theorem potential v : inside v ->
  let h' v := theta S (score H v) in let l := ln (v / (1 - v)) in
  is_derive h' v (h'' H S v) /\
  H * S * h' v = 2 * (l + sinh (S / H * l) / (S / H)).
Proof.
  intros V h' l. pose proof H_pos. split.
  - evar_last.
    { apply (is_derive_comp (theta S) (score H)); [now apply theta_derive |].
      unfold score, inside in *. auto_derive; [repeat split; try lra | reflexivity].
      apply Rdiv_lt_0_compat; lra. }
    unfold h''. rewrite (slope_sigma H (score H v)), sigma_score by easy.
    pose proof (slope_pos S (score H v) S_pos). unfold scal; simpl. unfold mult; simpl.
    unfold inside in *. field. lra.
  - unfold h'. replace (score H v) with (l / H) by easy.
    rewrite theta_bracket by easy. unfold bracket. field. lra.
Qed.

(** * Strong convexity *)

Theorem strong_convexity v : inside v ->
  16 / (H * S) <= h'' H S v /\ (h'' H S v = 16 / (H * S) <-> v = 1 / 2).
Proof.
  intro V. pose proof H_pos. unfold h''. set (w := score H v).
  pose proof (slope_pos H w H0). pose proof (slope_pos S w S_pos).
  pose proof (slope_le H w H0). pose proof (slope_le S w S_pos).
  assert (P : slope H w * slope S w <= H * S / 16).
  { replace (H * S / 16) with (H / 4 * (S / 4)) by field. apply Rmult_le_compat; lra. }
  assert (E : slope H w = H * v * (1 - v)) by
    (unfold w; rewrite slope_sigma, sigma_score by easy; reflexivity).
  replace (16 / (H * S)) with (1 / (H * S / 16)) by (field; lra).
  split.
  - apply Rmult_le_compat_l, Rinv_le_contravar; nra.
  - split.
    + intro Q. assert (Q' : slope H w * slope S w = H * S / 16).
      { unfold Rdiv at 1 2 in Q. rewrite !Rmult_1_l in Q.
        apply (f_equal Rinv) in Q. now rewrite !Rinv_inv in Q. }
      assert (slope H w = H / 4) by nra.
      assert (Z : H * (v - 1 / 2) ^ 2 = 0) by (rewrite E in H5; nra).
      apply Rmult_integral in Z as [Z | Z]; [lra |].
      assert (v - 1 / 2 = 0) by (apply Rsqr_eq_0; unfold Rsqr; lra). lra.
    + intros ->. assert (w = 0) as ->.
      { unfold w, score. replace (1 / 2 / (1 - 1 / 2)) with 1 by field.
        rewrite ln_1. field. lra. }
      rewrite !slope_0. field. lra.
Qed.

End WithTemperatures.

Print Assumptions distance_to_1.
Print Assumptions distance_to_0.
Print Assumptions finite_iff.
Print Assumptions finite_iff_0.
Print Assumptions between_the_corners.
Print Assumptions vanishing_at_a_corner.
Print Assumptions potential.
Print Assumptions strong_convexity.
