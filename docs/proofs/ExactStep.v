(** Claim two-temperature.exact-step, corollary 3 of the theorem (16) of
    docs/theory.md, as far as it is about (16).

    For the exact mirror step, h'(v+) = h'(v) - eta g, in place of (3), with
    h'(v) = theta(w) at v = sigma_H(w) by (5), the bound (16) holds with
    K = H S / 32, whatever the size of the g_t. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence ReadOff Regret.
Open Scope R_scope.

Section Entry.

Variables H S u w : R.
Hypothesis T : 0 < S <= H.
Hypothesis F : finite H S u.

Let A x := D H S u (sigma H x) - (sigma H w - u) * (theta S x - theta S w)
  - H * S / 32 * (theta S x - theta S w) ^ 2.

(** How far the mask lags behind its mirror image. *)
Let lag x := sigma H x - sigma H w - H * S / 16 * (theta S x - theta S w).

Lemma A_derive x : is_derive A x (lag x / slope S x).
Proof.
  pose proof (slope_pos S x ltac:(lra)). unfold A.
  assert (E : is_derive (theta S) x (/ slope S x)) by (apply theta_derive; lra).
  evar_last.
  { apply @is_derive_minus; [apply @is_derive_minus |].
    - apply divergence_derive; try lra. exact F.
    - apply is_derive_scal, @is_derive_minus; [exact E | apply @is_derive_const].
    - apply is_derive_scal, is_derive_pow, @is_derive_minus;
        [exact E | apply @is_derive_const]. }
  unfold lag, minus, plus, opp, zero, scal; simpl. unfold mult; simpl. field. lra.
Qed.

Lemma lag_derive x : is_derive lag x (slope H x - H * S / 16 / slope S x).
Proof.
  assert (E : is_derive (theta S) x (/ slope S x)) by (apply theta_derive; lra).
  unfold lag. evar_last.
  { apply @is_derive_minus; [apply @is_derive_minus;
      [apply sigma_derive | apply @is_derive_const] |].
    apply is_derive_scal, @is_derive_minus; [exact E | apply @is_derive_const]. }
  unfold minus, plus, opp, zero, scal; simpl. unfold mult; simpl.
  pose proof (slope_pos S x ltac:(lra)). field. lra.
Qed.

Lemma lag_falls x y : x <= y -> lag y <= lag x.
Proof.
  intro X. destruct (MVT_gen lag x y (fun x => slope H x - H * S / 16 / slope S x)) as [c [_ E]].
  - intros. apply lag_derive.
  - intros. apply continuity_pt_filterlim, (@ex_derive_continuous _ _ lag).
    eexists. apply lag_derive.
  - simpl in E.
    pose proof (slope_pos S c ltac:(lra)). pose proof (slope_le S c ltac:(lra)).
    pose proof (slope_pos H c ltac:(lra)). pose proof (slope_le H c ltac:(lra)).
    assert (slope H c <= H * S / 16 / slope S c).
    { apply Rmult_le_reg_r with (slope S c); [easy |].
      replace (H * S / 16 / slope S c * slope S c) with (H / 4 * (S / 4)) by (field; lra).
      apply Rmult_le_compat; lra. }
    nra.
Qed.

Lemma lag_0 : lag w = 0.
Proof. unfold lag. ring. Qed.

Lemma A_le x : A x <= A w.
Proof.
  destruct (MVT_gen A w x (fun x => lag x / slope S x)) as [c [C E]].
  - intros. apply A_derive.
  - intros. apply continuity_pt_filterlim, (@ex_derive_continuous _ _ A).
    eexists. apply A_derive.
  - simpl in E. pose proof (Rinv_0_lt_compat _ (slope_pos S c ltac:(lra))) as P.
    unfold Rdiv in E.
    destruct (Rle_or_lt w x) as [L | L].
    + rewrite Rmin_left, Rmax_right in C by lra.
      pose proof (lag_falls w c ltac:(lra)) as Q. rewrite lag_0 in Q.
      assert (lag c * / slope S c <= 0) by nra. nra.
    + rewrite Rmin_right, Rmax_left in C by lra.
      pose proof (lag_falls c w ltac:(lra)) as Q. rewrite lag_0 in Q.
      assert (0 <= lag c * / slope S c) by nra. nra.
Qed.

Lemma exact_step eta g w' : 0 < eta -> theta S w' = theta S w - eta * g ->
  g * (sigma H w - u) <=
    (D H S u (sigma H w) - D H S u (sigma H w')) / eta + eta * (H * S / 32) * g ^ 2.
Proof.
  intros E W. pose proof (A_le w') as L. unfold A in L. rewrite W in L.
  apply Rmult_le_reg_l with eta; [easy |].
  apply Rle_trans with
    (D H S u (sigma H w) - D H S u (sigma H w') + eta ^ 2 * (H * S / 32) * g ^ 2);
    [nra | right; field; lra].
Qed.

End Entry.

Theorem exact_regret (d T : nat) (H S eta : R) (u : nat -> R) (g w : nat -> nat -> R) :
  0 < S <= H -> 0 < eta ->
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat ->
    theta S (w (t + 1)%nat i) = theta S (w t i) - eta * g t i) ->
  (forall i, (1 <= i <= d)%nat -> 0 <= u i <= 1 /\ (S = H -> 0 < u i < 1)) ->
  let v t i := sigma H (w t i) in
  total T (fun t => total d (fun i => g t i * (v t i - u i))) <=
    (divergence d H S u (v 1%nat) - divergence d H S u (v (T + 1)%nat)) / eta
    + eta * (H * S / 32) * total T (fun t => norm d (g t) ^ 2).
Proof.
  intros TT E W U v. apply telescoped; try easy.
  intros t i Ht Hi. apply exact_step; try easy; [now apply U | now apply W].
Qed.

Print Assumptions exact_regret.
