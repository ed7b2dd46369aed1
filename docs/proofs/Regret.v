(** The theorem of claim two-temperature.convergence, (15) and (16) of
    docs/theory.md.

    Let g_1, ..., g_T be any vectors with entries of size at most G, and let
    v_1, ..., v_{T+1} be masks of d entries that follow by steps (3) of one
    rate eta. Every u in [0, 1]^d, in (0, 1)^d if S = H, has

      sum_t <g_t, v_t - u> <=
        (D(u, v_1) - D(u, v_{T+1})) / eta + eta K sum_t |g_t|^2

    with delta = eta G S^2 / 4, psi(x) = 2 (e^x - 1 - x) / x^2 and
    K = (1 + (S/H)^2) psi(2 delta) H S / 32.

    Vectors are indexed by 1, ..., d, and v_t = sigma_H(w_t) of any scores,
    so that v_1 is any mask of (0, 1)^d. At G = 0, where psi(0) is not
    defined, all g_t are 0 and the sides are equal. The proof is that of the
    page, with the mean value theorem, used twice, in place of Taylor's formula. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence Curvature.
Open Scope R_scope.

Definition psi (x : R) : R := 2 * (exp x - 1 - x) / x ^ 2.
Definition delta (S eta G : R) : R := eta * G * S ^ 2 / 4.
Definition K (H S eta G : R) : R :=
  (1 + (S / H) ^ 2) * psi (2 * delta S eta G) * (H * S / 32).

(** * How fast the slope changes *)

Lemma cosh_ratio x y : cosh y <= exp (Rabs (y - x)) * cosh x.
Proof.
  assert (E : forall a b, exp b <= exp (Rabs (b - a)) * exp a).
  { intros a b. rewrite <- exp_plus.
    assert (b <= Rabs (b - a) + a) as [L | L] by (pose proof (Rle_abs (b - a)); lra).
    - left. now apply exp_increasing.
    - right. now f_equal. }
  unfold cosh. pose proof (E x y). pose proof (E (- x) (- y)).
  replace (Rabs (- y - - x)) with (Rabs (y - x)) in H0 by
    (rewrite <- Rabs_Ropp; f_equal; ring).
  lra.
Qed.

Lemma slope_ratio M w x : 0 < M -> slope M w <= exp (M * Rabs (x - w)) * slope M x.
Proof.
  intro P. unfold slope.
  pose proof (cosh_ge_1 (M * w)). pose proof (cosh_ge_1 (M * x)).
  pose proof (cosh_ratio (M * w) (M * x)) as C.
  replace (Rabs (M * x - M * w)) with (M * Rabs (x - w)) in C by
    (rewrite <- Rmult_minus_distr_l, Rabs_mult, (Rabs_right M); lra).
  set (e := exp (M * Rabs (x - w))) in *.
  assert (1 <= e).
  { unfold e. rewrite <- exp_0. pose proof (Rabs_pos (x - w)).
    assert (0 <= M * Rabs (x - w)) as [L | L] by nra.
    - left. now apply exp_increasing.
    - right. now rewrite <- L. }
  apply Rmult_le_reg_r with (2 * (1 + cosh (M * w)) * (2 * (1 + cosh (M * x)))); [nra |].
  field_simplify; [nra | lra | lra].
Qed.

(** * One entry, one step *)

Lemma one_step H S eta G u g w : 0 < S <= H -> 0 < eta -> finite H S u -> Rabs g <= G ->
  g * (sigma H w - u) <=
    (D H S u (sigma H w) - D H S u (sigma H (step S eta g w))) / eta
    + eta * K H S eta G * g ^ 2.
Proof.
  intros T E F B. destruct (Req_dec g 0) as [-> | G0].
  { replace (step S eta 0 w) with w by (unfold step; ring). right. field. lra. }
  assert (GP : 0 < G) by (pose proof (Rabs_pos_lt g G0); lra).
  set (k := 2 * delta S eta G).
  assert (KP : 0 < k).
  { unfold k, delta. assert (0 < eta * G) by nra. assert (0 < S ^ 2) by nra. nra. }
  set (N := (1 + (S / H) ^ 2) * (H * S / 16)). set (c := eta ^ 2 * g ^ 2 * N).
  set (Delta := - (eta * g * slope S w)).
  set (Phi x := D H S u (sigma H x)).
  set (P x := (sigma H x - u) / slope S x).
  set (A r := Phi (w + r * Delta) - P w * (r * Delta)
    - c * ((exp (k * r) - 1 - k * r) / k ^ 2)).
  set (A' r := Delta * (P (w + r * Delta) - P w) - c * ((exp (k * r) - 1) / k)).
  set (A'' r := Delta ^ 2 * Derive P (w + r * Delta) - c * exp (k * r)).
  assert (along : forall r, is_derive (fun r => w + r * Delta) r Delta) by
    (intro; auto_derive; [easy | ring]).
  assert (D1 : forall r, is_derive A r (A' r)).
  { intro r. unfold A, A'.
    replace (Delta * (P (w + r * Delta) - P w)) with
      (Delta * P (w + r * Delta) - P w * Delta) by ring.
    apply @is_derive_minus; [apply @is_derive_minus |].
    - apply (is_derive_comp Phi (fun r => w + r * Delta)); [| apply along].
      apply divergence_derive; try lra. easy.
    - auto_derive; [easy | ring].
    - auto_derive; [easy | field; lra]. }
  assert (D2 : forall r, is_derive A' r (A'' r)).
  { intro r. unfold A', A''. apply @is_derive_minus.
    - evar_last.
      { apply is_derive_scal. apply @is_derive_minus; [| apply @is_derive_const].
        apply (is_derive_comp P (fun r => w + r * Delta)); [| apply along].
        apply Derive_correct, (curvature_of_slope H S u); [easy | apply F]. }
      unfold minus, plus, opp, zero, scal; simpl. unfold mult; simpl. ring.
    - auto_derive; [easy | field; lra]. }
  assert (A0 : A' 0 = 0).
  { unfold A'. rewrite Rmult_0_l, Rplus_0_r, Rmult_0_r, exp_0. field. lra. }
  assert (negative : forall r, 0 <= r <= 1 -> A'' r <= 0).
  { intros r R. unfold A''. set (x := w + r * Delta).
    destruct (curvature_of_slope H S u x T (proj1 F)) as [_ C].
    fold N in C. change (fun w => _) with P in C.
    pose proof (slope_pos S w ltac:(lra)). pose proof (slope_pos S x ltac:(lra)).
    assert (L : slope S w ^ 2 <= exp (k * r) * slope S x ^ 2).
    { assert (Q : S * Rabs (x - w) <= delta S eta G * r).
      { replace (x - w) with (- (eta * g * slope S w * r)) by (unfold x, Delta; ring).
        rewrite Rabs_Ropp, !Rabs_mult, (Rabs_right eta), (Rabs_right (slope S w)),
          (Rabs_right r) by lra.
        pose proof (slope_le S w ltac:(lra)). unfold delta.
        assert (Rabs g * slope S w <= G * (S / 4)) by
          (apply Rmult_le_compat; try lra; apply Rabs_pos).
        apply Rle_trans with (S * eta * r * (Rabs g * slope S w)); [right; ring |].
        apply Rle_trans with (S * eta * r * (G * (S / 4))); [| right; field].
        apply Rmult_le_compat_l; [repeat apply Rmult_le_pos |]; lra. }
      pose proof (slope_ratio S w x ltac:(lra)) as V.
      assert (exp (S * Rabs (x - w)) <= exp (delta S eta G * r)) as X.
      { destruct Q as [Q | Q]; [left; now apply exp_increasing | right; now f_equal]. }
      assert (slope S w <= exp (delta S eta G * r) * slope S x) as Y by nra.
      replace (k * r) with (delta S eta G * r + delta S eta G * r) by (unfold k; ring).
      rewrite exp_plus. pose proof (exp_pos (delta S eta G * r)).
      replace (_ * _ * slope S x ^ 2) with ((exp (delta S eta G * r) * slope S x) ^ 2) by ring.
      apply pow_incr. lra. }
    set (C2 := Derive P x) in *.
    assert (0 <= C2) by (assert (0 < slope S x ^ 2) by nra; nra).
    assert (slope S w ^ 2 * C2 <= exp (k * r) * N).
    { apply Rle_trans with (exp (k * r) * slope S x ^ 2 * C2).
      - apply Rmult_le_compat_r; lra.
      - rewrite Rmult_assoc. apply Rmult_le_compat_l; [left; apply exp_pos | lra]. }
    assert (0 <= eta ^ 2 * g ^ 2) by (apply Rmult_le_pos; apply pow2_ge_0).
    unfold c, Delta. nra. }
  pose proof (falls A A' A'' (fun r _ => D1 r) (fun r _ => D2 r) negative A0) as L. unfold A in L.
  rewrite Rmult_0_l, Rplus_0_r, !Rmult_0_r, exp_0 in L.
  replace (w + 1 * Delta) with (step S eta g w) in L by (unfold step, Delta; ring).
  unfold Phi in L. rewrite !Rmult_1_r in L.
  replace (P w * (1 * Delta)) with (- eta * (g * (sigma H w - u))) in L.
  2: { unfold P, Delta. pose proof (slope_pos S w ltac:(lra)). field. lra. }
  set (X := (exp k - 1 - k) / k ^ 2) in *.
  replace (eta * K H S eta G * g ^ 2) with (c * X / eta).
  2: { unfold c, X, N, K, psi. fold k. field. lra. }
  apply Rmult_le_reg_l with eta; [easy |].
  apply Rle_trans with
    (D H S u (sigma H w) - D H S u (sigma H (step S eta g w)) + c * X);
    [lra | right; field; lra].
Qed.

(** * The theorem *)

Definition divergence (d : nat) (H S : R) (u v : nat -> R) : R :=
  total d (fun i => D H S (u i) (v i)).

(** What holds of each entry in each step, summed. *)
Lemma telescoped (d T : nat) (H S eta K : R) (u : nat -> R) (g w : nat -> nat -> R) :
  0 < eta ->
  let v t i := sigma H (w t i) in
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat ->
    g t i * (v t i - u i) <=
      (D H S (u i) (v t i) - D H S (u i) (v (t + 1)%nat i)) / eta
      + eta * K * g t i ^ 2) ->
  total T (fun t => total d (fun i => g t i * (v t i - u i))) <=
    (divergence d H S u (v 1%nat) - divergence d H S u (v (T + 1)%nat)) / eta
    + eta * K * total T (fun t => norm d (g t) ^ 2).
Proof.
  intros E v A. induction T as [| T I].
  - rewrite !total_0. simpl. right. field. lra.
  - rewrite !total_S. specialize (I ltac:(intros; apply A; lia)).
    set (t := Datatypes.S T) in *. replace (T + 1)%nat with t in I by lia.
    assert (L : total d (fun i => g t i * (v t i - u i)) <=
      (divergence d H S u (v t) - divergence d H S u (v (t + 1)%nat)) / eta
      + eta * K * norm d (g t) ^ 2).
    { unfold norm. rewrite pow2_sqrt by (apply total_nonneg; intro; apply pow2_ge_0).
      unfold divergence, Rdiv.
      rewrite <- total_minus, Rmult_comm, <- !total_scal, <- total_plus.
      apply total_le. intros i Hi. pose proof (A t i ltac:(lia) Hi). lra. }
    replace ((divergence d H S u (v 1%nat) - divergence d H S u (v (t + 1)%nat)) / eta) with
      ((divergence d H S u (v 1%nat) - divergence d H S u (v t)) / eta +
       (divergence d H S u (v t) - divergence d H S u (v (t + 1)%nat)) / eta)
      by (field; lra).
    lra.
Qed.

Theorem regret (d T : nat) (H S eta G : R) (u : nat -> R) (g w : nat -> nat -> R) :
  0 < S <= H -> 0 < eta ->
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat -> Rabs (g t i) <= G) ->
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat ->
    w (t + 1)%nat i = step S eta (g t i) (w t i)) ->
  (forall i, (1 <= i <= d)%nat -> 0 <= u i <= 1 /\ (S = H -> 0 < u i < 1)) ->
  let v t i := sigma H (w t i) in
  total T (fun t => total d (fun i => g t i * (v t i - u i))) <=
    (divergence d H S u (v 1%nat) - divergence d H S u (v (T + 1)%nat)) / eta
    + eta * K H S eta G * total T (fun t => norm d (g t) ^ 2).
Proof.
  intros TT E B W U v. apply telescoped; [easy |].
  intros t i Ht Hi. unfold v. rewrite (W t i Ht Hi).
  apply one_step; try easy; [now apply U | now apply B].
Qed.

Print Assumptions regret.
