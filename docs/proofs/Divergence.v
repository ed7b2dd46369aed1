(** Equation (6) of docs/theory.md.

    The divergence D(u, v), from v in (0, 1) to u in [0, 1], is finite if u is
    in (0, 1) or if S < H (the 'if' of claim two-temperature.vertex-distance).
    Where it is, it is not negative, and D(u, sigma_H(w)) has the derivative
    (v - u) / sigma_S'(w). *)

From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature.
Open Scope R_scope.

(** Where the integral of (6) is to exist. *)
Definition finite (H S u : R) : Prop := 0 <= u <= 1 /\ (S = H -> inside u).

#[local] Instance near_a_mask_entry u : 0 <= u <= 1 -> ProperFilter (within inside (locally u)).
Proof.
  intro U. split; [| apply within_filter, locally_filter].
  intros P [e E].
  set (y := if Rle_dec u (1 / 2) then u + Rmin (e / 2) (1 / 4) else u - Rmin (e / 2) (1 / 4)).
  pose proof (cond_pos e).
  assert (M : 0 < Rmin (e / 2) (1 / 4) <= 1 / 4 /\ Rmin (e / 2) (1 / 4) <= e / 2).
  { repeat split; [apply Rmin_glb_lt; lra | apply Rmin_r | apply Rmin_l]. }
  exists y. apply E; unfold y, inside; destruct Rle_dec; try lra;
    unfold ball; simpl; unfold AbsRing_ball, abs, minus, plus, opp; simpl;
    apply Rabs_def1; lra.
Qed.

Definition integrand (H S u x : R) : R := (u - x) * h'' H S x.

Section WithTemperatures.

Variables H S : R.
Hypothesis H_pos : 0 < H.
Hypothesis S_pos : 0 < S.

Notation f := (integrand H S).

Lemma integrand_continuous u x : inside x -> continuous (f u) x.
Proof.
  intro. unfold integrand. apply @continuous_mult.
  - apply @continuous_minus; [apply continuous_const | apply continuous_id].
  - now apply h''_continuous.
Qed.

Lemma integrable u a b : inside a -> inside b -> ex_RInt (f u) a b.
Proof.
  unfold inside. intros. apply @ex_RInt_continuous. intros z Z.
  apply integrand_continuous. unfold inside, Rmin, Rmax in *.
  destruct Rle_dec; lra.
Qed.

Lemma inside_locally y : inside y -> locally y inside.
Proof.
  unfold inside. intro. apply (open_and (fun y => 0 < y) (fun y => y < 1));
    [apply open_gt | apply open_lt | lra].
Qed.

Lemma integral_derive u v y : inside v -> inside y -> is_derive (RInt (f u) v) y (f u y).
Proof.
  intros. apply @is_derive_RInt with v.
  - eapply filter_imp; [| apply inside_locally; eassumption].
    intros. apply @RInt_correct. now apply integrable.
  - now apply integrand_continuous.
Qed.

Lemma integral_of_score_derive u v w : inside v ->
  is_derive (fun w => RInt (f u) v (sigma H w)) w ((u - sigma H w) / slope S w).
Proof.
  intro. pose proof (sigma_inside H w).
  evar_last.
  { apply (is_derive_comp (RInt (f u) v) (sigma H)).
    - now apply integral_derive.
    - apply sigma_derive. }
  unfold integrand. rewrite h''_sigma by easy. unfold scal; simpl; unfold mult; simpl.
  field. pose proof (slope_pos H w H_pos). pose proof (slope_pos S w S_pos). lra.
Qed.

(** ** An improper integral is the limit of integrals *)

Lemma improper u v l : inside v ->
  (forall eps : posreal,
    within inside (locally u) (fun y => Rabs (RInt (f u) v y - l) < eps)) ->
  is_RInt_gen (f u) (at_point v) (within inside (locally u)) l.
Proof.
  intros V L P [eps E].
  apply Filter_prod with (fun a => a = v)
    (fun y => inside y /\ Rabs (RInt (f u) v y - l) < eps).
  - easy.
  - apply filter_and; [| apply L]. unfold within. now apply filter_forall.
  - intros a b -> [B A]. exists (RInt (f u) v b). split.
    + apply @RInt_correct. now apply integrable.
    + now apply E.
Qed.

Lemma finite_inside u v : inside u -> inside v ->
  is_RInt_gen (f u) (at_point v) (within inside (locally u)) (RInt (f u) v u).
Proof.
  intros U V. apply improper; [easy |]. intro eps.
  assert (C : continuous (RInt (f u) v) u).
  { apply @ex_derive_continuous. eexists. now apply integral_derive. }
  specialize (C (ball (RInt (f u) v u) eps) (locally_ball _ _)).
  unfold within, filtermap in *. eapply filter_imp; [| exact C]. now intros.
Qed.

(** ** At the vertex 1 *)

Lemma integrand_at_1 : S < H -> forall w, 0 <= w ->
  (1 - sigma H w) / slope S w <= 4 / S * exp (- ((H - S) * w)).
Proof.
  intros SH w W. unfold sigma, slope. rewrite cosh_exp.
  replace (- ((H - S) * w)) with (- (H * w) + S * w) by ring.
  rewrite exp_plus, exp_Ropp.
  assert (1 <= exp (S * w)).
  { destruct W as [W | <-].
    - rewrite <- exp_0. left. apply exp_increasing. nra.
    - rewrite Rmult_0_r, exp_0. lra. }
  pose proof (exp_pos (H * w)) as E. set (a := exp (H * w)) in *.
  set (b := exp (S * w)) in *.
  pose proof (Rinv_0_lt_compat _ E).
  assert (I : 0 < / b <= 1).
  { split; [apply Rinv_0_lt_compat; lra |]. rewrite <- Rinv_1.
    apply Rinv_le_contravar; lra. }
  replace ((1 - 1 / (1 + / a)) / (S / (2 * (1 + (b + / b) / 2))))
    with (/ (1 + a) * ((2 + b + / b) / S)) by (field; repeat split; nra).
  replace (4 / S * (/ a * b))
      with (/ a * (4 * b / S)) by (field; lra).
  apply Rmult_le_compat.
  - left. apply Rinv_0_lt_compat. lra.
  - apply Rdiv_le_0_compat; lra.
  - apply Rinv_le_contravar; lra.
  - apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat | lra].
Qed.

Lemma middle : inside (1 / 2).
Proof. unfold inside. lra. Qed.

Lemma integral_to_1_bounded : S < H -> forall y, 1 / 2 <= y < 1 ->
  RInt (f 1) (1 / 2) y <= 4 / S / (H - S).
Proof.
  intros SH y Y. assert (inside y) by (unfold inside; lra).
  set (Q w := RInt (f 1) (1 / 2) (sigma H w)).
  set (c := 4 / S / (H - S)).
  assert (C : 0 < c) by (apply Rdiv_lt_0_compat; [apply Rdiv_lt_0_compat |]; lra).
  set (G w := Q w + c * exp (- ((H - S) * w))).
  set (dG w := (1 - sigma H w) / slope S w - 4 / S * exp (- ((H - S) * w))).
  assert (GD : forall w, is_derive G w (dG w)).
  { intro w. unfold G, dG, Rminus at 1. apply @is_derive_plus.
    - apply integral_of_score_derive, middle.
    - auto_derive; [easy |]. unfold c. fold (H - S). field. lra. }
  assert (G0 : G 0 = c).
  { unfold G, Q. replace (sigma H 0) with (1 / 2).
    - rewrite RInt_point, Rmult_0_r, Ropp_0, exp_0. unfold zero; simpl. ring.
    - unfold sigma. rewrite Rmult_0_r, Ropp_0, exp_0. lra. }
  assert (W : 0 <= score H y).
  { unfold score. apply Rdiv_le_0_compat; [| easy].
    rewrite <- ln_1. apply ln_le; [lra |].
    apply Rmult_le_reg_r with (1 - y); [lra |]. field_simplify; lra. }
  destruct (MVT_gen G 0 (score H y) dG) as [x [X E]].
  - intros. apply GD.
  - intros. apply continuity_pt_filterlim.
    apply @ex_derive_continuous. eexists. apply GD.
  - rewrite Rmin_left, Rmax_right in X by easy.
    pose proof (integrand_at_1 SH x ltac:(lra)) as I.
    rewrite G0 in E. unfold G, Q in E. rewrite sigma_score in E by easy.
    pose proof (exp_pos (- ((H - S) * score H y))).
    assert (dG x <= 0) by (unfold dG; lra).
    nra.
Qed.

Lemma integral_to_1_increasing y z : 1 / 2 <= y <= z -> z < 1 ->
  RInt (f 1) (1 / 2) y <= RInt (f 1) (1 / 2) z.
Proof.
  intros. assert (inside y /\ inside z) as [Y Z] by (unfold inside; lra).
  rewrite <- (RInt_Chasles (f 1) (1 / 2) y z) by (apply integrable; first [easy | apply middle]).
  assert (0 <= RInt (f 1) y z).
  { apply RInt_ge_0; [lra | now apply integrable |].
    intros x X. unfold integrand. apply Rmult_le_pos; [lra | left; now apply h''_pos]. }
  unfold plus; simpl. lra.
Qed.

Lemma limit_at_1 : S < H -> exists l, forall eps : posreal, exists y0,
  y0 < 1 /\ forall y, y0 < y < 1 -> Rabs (RInt (f 1) (1 / 2) y - l) < eps.
Proof.
  intro SH.
  set (E z := exists y, 1 / 2 <= y < 1 /\ z = RInt (f 1) (1 / 2) y).
  destruct (completeness E) as [l [above least]].
  - exists (4 / S / (H - S)). intros z [y [Y ->]]. now apply integral_to_1_bounded.
  - exists (RInt (f 1) (1 / 2) (1 / 2)), (1 / 2). lra.
  - exists l. intro eps. pose proof (cond_pos eps) as EP.
    assert (exists y0, 1 / 2 <= y0 < 1 /\ l - eps < RInt (f 1) (1 / 2) y0) as [y0 [Y0 L0]].
    { apply Classical_Pred_Type.not_all_not_ex. intro N.
      assert (l <= l - eps); [| lra].
      apply least. intros z [y [Y ->]]. apply Rnot_lt_le. intro.
      now apply (N y). }
    exists y0. split; [easy |]. intros y Y.
    pose proof (integral_to_1_increasing y0 y ltac:(lra) ltac:(lra)).
    assert (RInt (f 1) (1 / 2) y <= l) by (apply above; exists y; split; [lra | easy]).
    apply Rabs_def1; lra.
Qed.

Lemma finite_at_1 : S < H -> exists l,
  is_RInt_gen (f 1) (at_point (1 / 2)) (within inside (locally 1)) l.
Proof.
  intro SH. destruct (limit_at_1 SH) as [l L]. exists l.
  apply improper; [apply middle |]. intro eps. destruct (L eps) as [y0 [Y0 E]].
  exists (mkposreal (1 - y0) ltac:(lra)). intros y B [_ I]. apply E. split; [| easy].
  apply Rabs_lt_between in B. simpl in B. unfold minus, plus, opp in B. simpl in B. lra.
Qed.

(** ** At the vertex 0: exchange v and 1 - v *)

Lemma h''_exchanged v : inside v -> h'' H S (1 - v) = h'' H S v.
Proof.
  unfold inside. intro V. unfold h''.
  replace (score H (1 - v)) with (- score H v).
  - now rewrite !slope_even.
  - unfold score. replace (1 - (1 - v)) with v by ring.
    replace ((1 - v) / v) with (/ (v / (1 - v))) by (field; lra).
    rewrite ln_Rinv by (apply Rdiv_lt_0_compat; lra). field. lra.
Qed.

Lemma integral_exchanged y : inside y ->
  RInt (f 0) (1 / 2) y = RInt (f 1) (1 / 2) (1 - y).
Proof.
  intro Y. assert (inside (1 - y)) by (unfold inside in *; lra).
  assert (ex_RInt (f 1) (-1 * (1 / 2) + 1) (-1 * y + 1)).
  { apply integrable; unfold inside in *; lra. }
  pose proof (RInt_comp_lin (f 1) (-1) 1 (1 / 2) y H1) as C.
  replace (-1 * (1 / 2) + 1) with (1 / 2) in C by lra.
  replace (-1 * y + 1) with (1 - y) in C by lra.
  rewrite <- C. apply RInt_ext. intros x X.
  assert (inside x).
  { unfold inside, Rmin, Rmax in *. destruct Rle_dec; lra. }
  unfold integrand, scal; simpl; unfold mult; simpl.
  replace (-1 * x + 1) with (1 - x) by ring. rewrite h''_exchanged by easy. ring.
Qed.

Lemma finite_at_0 : S < H -> exists l,
  is_RInt_gen (f 0) (at_point (1 / 2)) (within inside (locally 0)) l.
Proof.
  intro SH. destruct (limit_at_1 SH) as [l L]. exists l.
  apply improper; [apply middle |]. intro eps. destruct (L eps) as [y0 [Y0 E]].
  exists (mkposreal (1 - y0) ltac:(lra)). intros y B I.
  rewrite integral_exchanged by easy. apply E. unfold inside in I.
  apply Rabs_lt_between in B. simpl in B. unfold minus, plus, opp in B. simpl in B. lra.
Qed.

(** * The divergence is finite *)

Theorem divergence_exists u v : S <= H -> finite H S u -> inside v ->
  is_RInt_gen (fun x => (u - x) * h'' H S x)
    (at_point v) (within inside (locally u)) (D H S u v).
Proof.
  intros SH [U I] V. unfold D. fold (f u).
  pose proof (near_a_mask_entry u U).
  apply @RInt_gen_correct; try typeclasses eauto.
  assert (exists l, is_RInt_gen (f u) (at_point (1 / 2)) (within inside (locally u)) l)
    as [l L].
  { destruct (Req_dec u 0) as [-> | U0].
    { apply finite_at_0. destruct SH as [SH | SH]; [easy |].
      specialize (I SH). unfold inside in I. lra. }
    destruct (Req_dec u 1) as [-> | U1].
    { apply finite_at_1. destruct SH as [SH | SH]; [easy |].
      specialize (I SH). unfold inside in I. lra. }
    eexists. apply finite_inside; unfold inside; lra. }
  eexists. apply @is_RInt_gen_Chasles with (b := 1 / 2); try typeclasses eauto;
    [| exact L].
  apply is_RInt_gen_at_point, @RInt_correct, integrable; [easy | apply middle].
Qed.

Lemma divergence_moves u v v' : S <= H -> finite H S u -> inside v -> inside v' ->
  D H S u v = RInt (f u) v v' + D H S u v'.
Proof.
  intros SH F V V'. pose proof (near_a_mask_entry u (proj1 F)).
  unfold D at 1. fold (f u).
  apply @is_RInt_gen_unique; try typeclasses eauto.
  apply @is_RInt_gen_Chasles with (b := v'); try typeclasses eauto.
  - apply is_RInt_gen_at_point, @RInt_correct. now apply integrable.
  - now apply divergence_exists.
Qed.

(** * The second half of (6) *)

Theorem divergence_derive u w : S <= H -> finite H S u ->
  is_derive (fun w => D H S u (sigma H w)) w ((sigma H w - u) / slope S w).
Proof.
  intros SH F. pose proof middle as M.
  apply is_derive_ext with
    (fun w => D H S u (1 / 2) - RInt (f u) (1 / 2) (sigma H w)).
  - intro x. rewrite (divergence_moves u (1 / 2) (sigma H x)) by
      (try easy; apply sigma_inside). lra.
  - evar_last.
    { apply @is_derive_minus; [apply @is_derive_const |].
      apply integral_of_score_derive, M. }
    unfold minus, plus, opp, zero; simpl. field.
    pose proof (slope_pos S w S_pos). lra.
Qed.

End WithTemperatures.

(** * It is not negative *)

Theorem divergence_nonneg H S u v : 0 < S <= H -> finite H S u -> inside v -> 0 <= D H S u v.
Proof.
  intros T F V. assert (HP : 0 < H) by lra. assert (SP : 0 < S) by lra.
  apply Rnot_lt_le. intro N.
  pose proof (divergence_exists H S HP SP u v (proj2 T) F V) as L.
  assert (E : 0 < - D H S u v) by lra.
  destruct (L _ (locally_ball _ (mkposreal _ E))) as [A B HA [e HB] near].
  (* A point of the cube between v and u, and near u. *)
  assert (P : exists y, inside y /\ Rabs (y - u) < e /\ (v <= y <= u \/ u <= y <= v)).
  { destruct F as [U _]. pose proof (cond_pos e) as EP. unfold inside in *.
    destruct (Rle_or_lt u v) as [C | C].
    - exists (Rmin v (u + e / 2)). unfold Rmin. destruct Rle_dec.
      + repeat split; try lra. rewrite Rabs_right; lra.
      + repeat split; try lra. rewrite Rabs_right; lra.
    - exists (Rmax v (u - e / 2)). unfold Rmax. destruct Rle_dec.
      + repeat split; try lra. rewrite Rabs_left; lra.
      + repeat split; try lra. rewrite Rabs_left; lra. }
  destruct P as [y [I [Y C]]].
  destruct (near v y HA (HB y Y I)) as [z [J Z]]. simpl in J.
  apply (is_RInt_unique (integrand H S u)) in J.
  apply Rabs_lt_between in Z. simpl in Z. unfold minus, plus, opp in Z. simpl in Z.
  assert (0 <= z); [| lra]. rewrite <- J.
  assert (X : forall a b, inside a -> inside b -> ex_RInt (integrand H S u) a b)
    by (intros; now apply integrable).
  destruct C as [C | C].
  - apply RInt_ge_0; [lra | now apply X |]. intros x Hx. unfold integrand.
    apply Rmult_le_pos; [lra | left; now apply h''_pos].
  - rewrite <- opp_RInt_swap by now apply X.
    assert (RInt (integrand H S u) y v <= 0); [| unfold opp; simpl; lra].
    replace 0 with (RInt (fun _ => 0) y v).
    2: { rewrite RInt_const. unfold scal; simpl. unfold mult; simpl. ring. }
    apply RInt_le; [lra | now apply X | apply @ex_RInt_const |].
    intros x Hx. unfold integrand. pose proof (h''_pos H S x HP SP). nra.
Qed.

Print Assumptions divergence_exists.
Print Assumptions divergence_derive.
Print Assumptions divergence_nonneg.
