(** Claim two-temperature.time-to-read-off, and (11) of
    two-temperature.vertex-distance.

    Time to read off: let an entry begin at w_1 >= 0, g_t <= - gamma < 0 in all
    steps (3), and b > 0. Then H w_{n+1} >= b as soon as

      n >= 2 / (H S eta gamma) (b + sinh(rho b) / rho),      rho = S / H.

    The flow w' = - g sigma_S'(w) with g = - gamma from w_1 = 0 is there at
    exactly the time t = n eta of equality. For w_1 <= 0 and g_t >= gamma the
    same is true of - H w_{n+1}.

    (11): let an entry be at v = eps < 1/2, and l = log((1 - eps) / eps). Steps
    (3) with |g_t| <= gamma take at least

      2 / (H S eta gamma) (l + sinh(rho l) / rho)

    steps to bring it to v >= 1/2. Both for any H, S > 0. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature.
Open Scope R_scope.

(** (5): the mirror map. *)
Definition theta (S w : R) : R := 2 / S * (w + sinh (S * w) / S).

Definition bracket (rho b : R) : R := b + sinh (rho * b) / rho.

Section WithTemperatures.

Variables H S eta gamma : R.
Hypothesis H_pos : 0 < H.
Hypothesis S_pos : 0 < S.
Hypothesis eta_pos : 0 < eta.
Hypothesis gamma_pos : 0 < gamma.

Lemma theta_derive w : is_derive (theta S) w (/ slope S w).
Proof.
  unfold theta, sinh, slope, cosh. pose proof (exp_pos (S * w)).
  pose proof (exp_pos (- (S * w))). auto_derive; [lra |]. field. lra.
Qed.

Lemma slope_falls x y : 0 <= x <= y -> slope S y <= slope S x.
Proof.
  intro X. unfold slope.
  assert (cosh (S * x) <= cosh (S * y)).
  { rewrite !cosh_exp.
    assert (1 <= exp (S * x)).
    { destruct X as [[X | <-] _].
      - rewrite <- exp_0. left. apply exp_increasing. nra.
      - rewrite Rmult_0_r, exp_0. lra. }
    assert (exp (S * x) <= exp (S * y)).
    { destruct X as [_ [X | <-]]; [left; apply exp_increasing; nra | lra]. }
    set (a := exp (S * x)) in *. set (b := exp (S * y)) in *.
    assert (0 <= (b - a) * (1 - / (a * b))).
    { assert (/ (a * b) <= / 1) by (apply Rinv_le_contravar; nra).
      rewrite Rinv_1 in *. apply Rmult_le_pos; lra. }
    replace ((b - a) * (1 - / (a * b))) with (b + / b - (a + / a)) in H2 by (field; lra).
    lra. }
  pose proof (cosh_ge_1 (S * x)). apply Rmult_le_compat_l; [lra |].
  apply Rinv_le_contravar; lra.
Qed.

Lemma theta_odd w : theta S (- w) = - theta S w.
Proof.
  unfold theta, sinh. rewrite <- Ropp_mult_distr_r, Ropp_involutive. field. lra.
Qed.

Lemma theta_mvt x y : x < y -> exists c, x < c < y /\ theta S y - theta S x = (y - x) / slope S c.
Proof.
  intro XY. destruct (MVT_cor2 (theta S) (fun c => / slope S c) x y XY) as [c [E C]].
  - intros. apply is_derive_Reals, theta_derive.
  - exists c. split; [easy |]. rewrite E. unfold Rdiv. ring.
Qed.

Lemma theta_increasing x y : x < y -> theta S x < theta S y.
Proof.
  intro XY. destruct (theta_mvt x y XY) as [c [_ E]].
  pose proof (slope_pos S c S_pos).
  assert (0 < (y - x) / slope S c) by (apply Rdiv_lt_0_compat; lra). lra.
Qed.

Lemma theta_le x y : theta S x <= theta S y -> x <= y.
Proof.
  intro L. apply Rnot_lt_le. intro YX. pose proof (theta_increasing y x YX). lra.
Qed.

Lemma theta_0 : theta S 0 = 0.
Proof. unfold theta. rewrite Rmult_0_r, sinh_0. field. lra. Qed.

Lemma theta_bracket b : theta S (b / H) = 2 / (H * S) * bracket (S / H) b.
Proof.
  unfold theta, bracket. replace (S * (b / H)) with (S / H * b) by (field; lra).
  field. lra.
Qed.

(** ** One step away from 0 *)

Lemma step_up g w : 0 <= w -> g <= - gamma ->
  w <= step S eta g w /\ theta S w + eta * gamma <= theta S (step S eta g w).
Proof.
  intros W G. pose proof (slope_pos S w S_pos) as P. unfold step.
  assert (D : eta * gamma * slope S w <= - (eta * g * slope S w)).
  { replace (- (eta * g * slope S w)) with (eta * - g * slope S w) by ring.
    apply Rmult_le_compat_r, Rmult_le_compat_l; lra. }
  assert (0 < eta * gamma * slope S w) by
    (apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat |]; lra).
  split; [lra |].
  set (w' := w - eta * g * slope S w) in *.
  destruct (theta_mvt w w' ltac:(unfold w'; lra)) as [c [C E]].
  pose proof (slope_falls w c ltac:(lra)). pose proof (slope_pos S c S_pos).
  assert (eta * gamma <= (w' - w) / slope S c); [| lra].
  apply Rmult_le_reg_r with (slope S c); [easy |].
  replace ((w' - w) / slope S c * slope S c) with (w' - w) by (field; lra).
  apply Rle_trans with (eta * gamma * slope S w).
  - apply Rmult_le_compat_l; [apply Rmult_le_pos |]; lra.
  - unfold w'. lra.
Qed.

Lemma steps_up (g w : nat -> R) n : 0 <= w 1%nat ->
  (forall t, (1 <= t <= n)%nat ->
    g t <= - gamma /\ w (t + 1)%nat = step S eta (g t) (w t)) ->
  0 <= w (n + 1)%nat /\ INR n * (eta * gamma) <= theta S (w (n + 1)%nat).
Proof.
  intros W A. induction n as [| n I].
  - split; [easy |]. simpl. rewrite Rmult_0_l.
    pose proof theta_0. destruct W as [W | <-]; [| simpl; lra].
    pose proof (theta_increasing _ _ W). simpl in *. lra.
  - destruct I as [I I']; [intros; apply A; lia |].
    destruct (A (Datatypes.S n)) as [G E]; [lia |].
    rewrite E. replace (n + 1)%nat with (Datatypes.S n) in I, I' by lia.
    pose proof (step_up (g (Datatypes.S n)) (w (Datatypes.S n)) I G).
    rewrite S_INR. lra.
Qed.

(** ** One step towards 0 *)

Lemma step_in g w : Rabs g <= gamma ->
  w < 0 -> theta S (Rmin 0 (step S eta g w)) <= theta S w + eta * gamma.
Proof.
  intros G W. set (w' := Rmin 0 (step S eta g w)).
  destruct (Rle_or_lt w' w) as [L | L].
  { assert (theta S w' <= theta S w).
    { destruct L as [L | ->]; [left; now apply theta_increasing | lra]. }
    assert (0 < eta * gamma) by (now apply Rmult_lt_0_compat). lra. }
  pose proof (slope_pos S w S_pos).
  assert (w' <= 0) by apply Rmin_l. assert (w' <= step S eta g w) by apply Rmin_r.
  destruct (theta_mvt w w' L) as [c [C E]]. pose proof (slope_pos S c S_pos).
  assert (slope S w <= slope S c).
  { rewrite <- (slope_even S w), <- (slope_even S c). apply slope_falls. lra. }
  assert (B : w' - w <= eta * gamma * slope S w).
  { apply Rle_trans with (- (eta * g * slope S w)); [unfold step in *; lra |].
    replace (- (eta * g * slope S w)) with (eta * - g * slope S w) by ring.
    apply Rabs_le_between in G.
    apply Rmult_le_compat_r, Rmult_le_compat_l; lra. }
  assert ((w' - w) / slope S c <= eta * gamma); [| lra].
  apply Rmult_le_reg_r with (slope S c); [easy |].
  replace ((w' - w) / slope S c * slope S c) with (w' - w) by (field; lra).
  apply Rle_trans with (1 := B). apply Rmult_le_compat_l; [apply Rmult_le_pos |]; lra.
Qed.

Lemma steps_in (g w : nat -> R) n : w 1%nat < 0 ->
  (forall t, (1 <= t <= n)%nat ->
    Rabs (g t) <= gamma /\ w (t + 1)%nat = step S eta (g t) (w t)) ->
  0 <= w (n + 1)%nat -> - theta S (w 1%nat) <= INR n * (eta * gamma).
Proof.
  intros W A.
  (* Up to the first step that ends at 0 or beyond. *)
  assert (I : w (n + 1)%nat < 0 /\
      theta S (w (n + 1)%nat) <= theta S (w 1%nat) + INR n * (eta * gamma) \/
    0 <= theta S (w 1%nat) + INR n * (eta * gamma)).
  { induction n as [| n I].
    - left. simpl. split; [easy | lra].
    - assert (P : 0 < eta * gamma) by (now apply Rmult_lt_0_compat).
      rewrite S_INR. destruct I as [[N I] | I]; [intros; apply A; lia | | right; lra].
      destruct (A (Datatypes.S n)) as [G E]; [lia |].
      replace (n + 1)%nat with (Datatypes.S n) in N, I by lia.
      pose proof (step_in _ _ G N) as B. rewrite <- E in B.
      destruct (Rlt_or_le (w (Datatypes.S n + 1)%nat) 0) as [L | L].
      + rewrite Rmin_right in B by lra. left. split; [easy | lra].
      + rewrite Rmin_left, theta_0 in B by lra. right. lra. }
  intro Z. destruct I as [[N _] | I]; lra.
Qed.

End WithTemperatures.

(** * The statements *)

Theorem time_to_read_off (H S eta gamma b : R) (n : nat) (g w : nat -> R) :
  0 < H -> 0 < S -> 0 < eta -> 0 < gamma -> 0 < b -> 0 <= w 1%nat ->
  (forall t, (1 <= t <= n)%nat ->
    g t <= - gamma /\ w (t + 1)%nat = step S eta (g t) (w t)) ->
  2 / (H * S * eta * gamma) * (b + sinh (S / H * b) / (S / H)) <= INR n ->
  b <= H * w (n + 1)%nat.
Proof.
  intros HP SP EP GP BP W A N.
  destruct (steps_up S eta gamma SP EP GP g w n W A) as [_ L].
  assert (T : theta S (b / H) <= theta S (w (n + 1)%nat)).
  { apply Rle_trans with (2 := L). rewrite theta_bracket by easy. unfold bracket.
    apply Rmult_le_compat_r with (r := eta * gamma) in N; [| apply Rmult_le_pos; lra].
    apply Rle_trans with (2 := N). right. field. lra. }
  apply theta_le in T; [| easy].
  apply Rmult_le_compat_l with (r := H) in T; [| lra].
  replace (H * (b / H)) with b in T by (field; lra). easy.
Qed.

(** The other sign. *)
Theorem time_to_read_off_0 (H S eta gamma b : R) (n : nat) (g w : nat -> R) :
  0 < H -> 0 < S -> 0 < eta -> 0 < gamma -> 0 < b -> w 1%nat <= 0 ->
  (forall t, (1 <= t <= n)%nat ->
    gamma <= g t /\ w (t + 1)%nat = step S eta (g t) (w t)) ->
  2 / (H * S * eta * gamma) * (b + sinh (S / H * b) / (S / H)) <= INR n ->
  b <= - (H * w (n + 1)%nat).
Proof.
  intros HP SP EP GP BP W A N.
  rewrite Ropp_mult_distr_r.
  apply (time_to_read_off H S eta gamma b n (fun t => - g t) (fun t => - w t)); try easy.
  - lra.
  - intros t T. destruct (A t T) as [G E]. rewrite E. split; [lra |].
    unfold step. rewrite slope_even. ring.
Qed.

(** The flow is there at exactly this time. *)
Theorem time_of_the_flow (H S gamma b : R) (w : R -> R) :
  0 < H -> 0 < S -> 0 < gamma -> w 0 = 0 ->
  continuous w 0 -> (forall t, 0 < t -> is_derive w t (gamma * slope S (w t))) ->
  forall t, 0 <= t ->
    H * w t = b <-> t = 2 / (H * S * gamma) * (b + sinh (S / H * b) / (S / H)).
Proof.
  intros HP SP GP W0 C F.
  assert (T : forall t, 0 <= t -> theta S (w t) = gamma * t).
  { intros t [T | <-]; [| rewrite W0, theta_0 by easy; ring].
    assert (D : forall t, 0 < t -> is_derive (fun t => theta S (w t)) t gamma).
    { intros r R. evar_last.
      { apply (is_derive_comp (theta S) w); [now apply theta_derive | now apply F]. }
      unfold scal; simpl. unfold mult; simpl. field.
      pose proof (slope_pos S (w r) SP). lra. }
    destruct (MVT_gen (fun t => theta S (w t)) 0 t (fun _ => gamma)) as [c [_ E]];
      rewrite ?Rmin_left, ?Rmax_right by lra.
    - intros. apply D. lra.
    - intros r [[P | <-] _]; apply continuity_pt_filterlim.
      + change (continuous (fun t => theta S (w t)) r). apply @ex_derive_continuous. eexists. now apply D.
      + apply (continuous_comp w (theta S)); [easy |].
        apply @ex_derive_continuous. eexists. now apply theta_derive.
    - simpl in E. rewrite W0, theta_0 in E by easy. lra. }
  intros t P.
  replace (2 / (H * S * gamma) * (b + sinh (S / H * b) / (S / H))) with
    (theta S (b / H) / gamma) by (rewrite theta_bracket by easy; unfold bracket; field; lra).
  split; intro E.
  - replace (b / H) with (w t) by (rewrite <- E; field; lra). rewrite T by easy. field. lra.
  - assert (Q : theta S (w t) = theta S (b / H)) by (rewrite T, E by easy; field; lra).
    assert (w t = b / H) as ->; [| field; lra].
    apply Rle_antisym; apply theta_le with S; try easy; lra.
Qed.

(** (11) *)
Theorem leaving_a_wrong_corner (H S eta gamma eps : R) (n : nat) (g w : nat -> R) :
  0 < H -> 0 < S -> 0 < eta -> 0 < gamma -> 0 < eps < 1 / 2 ->
  sigma H (w 1%nat) = eps ->
  (forall t, (1 <= t <= n)%nat ->
    Rabs (g t) <= gamma /\ w (t + 1)%nat = step S eta (g t) (w t)) ->
  1 / 2 <= sigma H (w (n + 1)%nat) ->
  let l := ln ((1 - eps) / eps) in
  2 / (H * S * eta * gamma) * (l + sinh (S / H * l) / (S / H)) <= INR n.
Proof.
  intros HP SP EP GP E V A Z l.
  assert (half : sigma H 0 = 1 / 2).
  { unfold sigma. rewrite Rmult_0_r, Ropp_0, exp_0. lra. }
  assert (W : w 1%nat = - l / H).
  { rewrite <- (score_sigma H (w 1%nat)), V by easy. unfold score, l.
    replace (eps / (1 - eps)) with (/ ((1 - eps) / eps)) by (field; lra).
    rewrite ln_Rinv by (apply Rdiv_lt_0_compat; lra). field. lra. }
  assert (W0 : w 1%nat < 0).
  { apply Rnot_le_lt. intros [L | L].
    - pose proof (sigma_increasing H _ _ HP L). lra.
    - rewrite <- L in V. lra. }
  assert (Wn : 0 <= w (n + 1)%nat).
  { apply Rnot_lt_le. intro L. pose proof (sigma_increasing H _ _ HP L). lra. }
  pose proof (steps_in S eta gamma SP EP GP g w n W0 A Wn) as B.
  rewrite W in B. replace (- l / H) with (- (l / H)) in B by (field; lra).
  rewrite theta_odd, Ropp_involutive, theta_bracket in B by easy. unfold bracket in B.
  apply Rmult_le_reg_r with (eta * gamma); [now apply Rmult_lt_0_compat |].
  apply Rle_trans with (2 := B). right. field. lra.
Qed.

Print Assumptions time_to_read_off.
Print Assumptions time_to_read_off_0.
Print Assumptions time_of_the_flow.
Print Assumptions leaving_a_wrong_corner.
