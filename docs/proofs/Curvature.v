(** The lemma of claim two-temperature.convergence, (13) of docs/theory.md.

    For all w and all u in [0, 1], with Phi(w) = D(u, sigma_H(w)) and
    0 < S <= H,

      0 <= sigma_S'(w)^2 Phi''(w) <= (1 + (S/H)^2) H S / 16.

    Where D is finite, which is where u is in (0, 1) or S < H, Phi'' is the
    second derivative of Phi, and that it exists is proved. Where it is not,
    Phi'' stands for the derivative of (6)'s (v - u) / sigma_S', as in the
    proof on the page: this is [curvature_of_slope]. *)

From Coq Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence.
Open Scope R_scope.

(** * A polynomial inequality *)

(** With t = tanh(S w / 2), tau = tanh(H w / 2) and r = S / H the quantity is
    H S / 16 times this, which is (14). *)
Definition q (r t tau u : R) : R :=
  (1 - t ^ 2) * (1 - tau ^ 2 + 2 * r * t * (1 + tau - 2 * u)).

Lemma products_nonneg a b : 0 <= a -> 0 <= b -> 0 <= a * b.
Proof. apply Rmult_le_pos. Qed.

Ltac nonneg :=
  repeat first
    [ lra | apply pow2_ge_0 | apply products_nonneg | apply pow_le
    | apply Rplus_le_le_0_compat ].

Section UpperHalf.

Variables r t tau u : R.
Hypothesis r_range : 0 < r <= 1.
Hypothesis t_range : 0 <= t <= tau.
Hypothesis tau_range : tau < 1.
Hypothesis u_range : 0 <= u <= 1.

Lemma q_nonneg : 0 <= q r t tau u.
Proof.
  unfold q. replace (1 - tau ^ 2 + 2 * r * t * (1 + tau - 2 * u)) with
    ((1 - u) * ((1 + tau) * (1 - tau + 2 * r * t))
     + u * ((1 - tau) * (1 - tau + 2 * ((tau - t) + (1 - r) * t)))) by ring.
  assert (0 <= (1 - r) * t) by nonneg. assert (0 <= r * t) by nonneg.
  replace (1 - t ^ 2) with ((1 - t) * (1 + t)) by ring. nonneg.
Qed.

(** At u = 0 and at u = 1; q is affine in u. *)
Lemma q_at_0 : q r t tau 0 <= 1 + r ^ 2.
Proof.
  apply Rminus_le_0. unfold q.
  replace (_ - _) with
    ((r - t * (1 - t ^ 2) * (1 + t)) ^ 2
     + t ^ 2 * ((1 - t - t ^ 2 / 2) ^ 2
                + t ^ 3 * (3 * ((1 - t) * (1 + t)) + t ^ 2 * (1 - t) + 3 / 4 * t))
     + (1 - t) * (1 + t) * ((tau - t) * ((tau - t) + 2 * t * (1 - r)))) by field.
  nonneg.
Qed.

Lemma q_at_1 : q r t tau 1 <= 1 + r ^ 2.
Proof.
  apply Rminus_le_0. unfold q.
  replace (_ - _) with
    (r ^ 2 + t ^ 2 + tau ^ 2 * ((1 - t) * (1 + t))
     + 2 * (r * t * ((1 - t) * (1 + t)) * (1 - tau))) by ring.
  nonneg.
Qed.

Lemma q_le : q r t tau u <= 1 + r ^ 2.
Proof.
  replace (q r t tau u) with ((1 - u) * q r t tau 0 + u * q r t tau 1)
    by (unfold q; ring).
  pose proof q_at_0. pose proof q_at_1. nra.
Qed.

End UpperHalf.

(** What is left of it for w < 0: nothing changes when (w, u) is (- w, 1 - u). *)
Lemma q_exchanged r t tau u : q r (- t) (- tau) (1 - u) = q r t tau u.
Proof. unfold q. ring. Qed.

(** * The hyperbolic tangent of M w / 2 *)

Definition tau (M w : R) : R := 2 * sigma M w - 1.

Lemma tau_odd M w : tau M (- w) = - tau M w.
Proof.
  unfold tau, sigma. rewrite <- Ropp_mult_distr_r, !exp_Ropp, Rinv_inv.
  pose proof (exp_pos (M * w)) as E. pose proof (Rinv_0_lt_compat _ E). field. lra.
Qed.

Lemma tau_range M w : 0 < M -> 0 <= w -> 0 <= tau M w < 1.
Proof.
  intros. unfold tau. pose proof (sigma_inside M w) as I. unfold inside in I.
  split; [| lra]. unfold sigma.
  assert (exp (- (M * w)) <= 1).
  { rewrite <- exp_0. destruct H0 as [W | <-].
    - left. apply exp_increasing. nra.
    - right. f_equal. ring. }
  pose proof (exp_pos (- (M * w))).
  apply Rmult_le_reg_r with (1 + exp (- (M * w))); [lra |]. field_simplify; lra.
Qed.

Lemma tau_le S H w : S <= H -> 0 <= w -> tau S w <= tau H w.
Proof.
  intros. unfold tau, sigma.
  assert (exp (- (H * w)) <= exp (- (S * w))).
  { assert (- (H * w) <= - (S * w)) as [E | E] by nra.
    - left. now apply exp_increasing.
    - right. now f_equal. }
  pose proof (exp_pos (- (H * w))). pose proof (exp_pos (- (S * w))).
  assert (/ (1 + exp (- (S * w))) <= / (1 + exp (- (H * w)))) by
    (apply Rinv_le_contravar; lra).
  lra.
Qed.

(** * The derivative, (14) *)

Lemma slope_of_divergence_derive H S u w : 0 < S ->
  is_derive (fun w => (sigma H w - u) / slope S w) w
    ((slope H w - (sigma H w - u) * (S * (1 - 2 * sigma S w))) / slope S w).
Proof.
  intro. pose proof (slope_pos S w H0).
  evar_last.
  { apply is_derive_div; [| now apply slope_derive | lra].
    apply @is_derive_minus; [apply sigma_derive | apply @is_derive_const]. }
  unfold minus, plus, opp, zero; simpl. field. lra.
Qed.

Lemma curvature_is_q H S u w : 0 < S <= H ->
  slope S w ^ 2
    * ((slope H w - (sigma H w - u) * (S * (1 - 2 * sigma S w))) / slope S w)
  = H * S / 16 * q (S / H) (tau S w) (tau H w) u.
Proof.
  intros. pose proof (slope_pos S w ltac:(lra)). unfold tau, q.
  replace (slope S w ^ 2 * _) with
    (slope S w * (slope H w - (sigma H w - u) * (S * (1 - 2 * sigma S w)))) by
    (field; lra).
  rewrite !slope_sigma. field. lra.
Qed.

(** * The lemma *)

Lemma q_range H S u w : 0 < S <= H -> 0 <= u <= 1 ->
  0 <= q (S / H) (tau S w) (tau H w) u <= 1 + (S / H) ^ 2.
Proof.
  intros T U.
  assert (R : 0 < S / H <= 1).
  { split; [apply Rdiv_lt_0_compat; lra |].
    apply Rmult_le_reg_r with H; [lra |]. field_simplify; lra. }
  destruct (Rle_or_lt 0 w) as [W | W].
  - pose proof (tau_range S w ltac:(lra) W). pose proof (tau_range H w ltac:(lra) W).
    pose proof (tau_le S H w ltac:(lra) W).
    split; [apply q_nonneg | apply q_le]; lra.
  - rewrite <- q_exchanged, <- !tau_odd.
    pose proof (tau_range S (- w) ltac:(lra) ltac:(lra)).
    pose proof (tau_range H (- w) ltac:(lra) ltac:(lra)).
    pose proof (tau_le S H (- w) ltac:(lra) ltac:(lra)).
    split; [apply q_nonneg | apply q_le]; lra.
Qed.

Theorem curvature_of_slope H S u w : 0 < S <= H -> 0 <= u <= 1 ->
  let Phi' := fun w => (sigma H w - u) / slope S w in
  ex_derive Phi' w /\
  0 <= slope S w ^ 2 * Derive Phi' w <= (1 + (S / H) ^ 2) * (H * S / 16).
Proof.
  intros T U Phi'.
  pose proof (slope_of_divergence_derive H S u w (proj1 T)) as E.
  split; [eexists; exact E |].
  replace (Derive Phi' w) with (Derive (fun w => (sigma H w - u) / slope S w) w) by easy.
  pose proof (is_derive_unique _ _ _ E) as V. simpl in V. rewrite V, curvature_is_q by easy.
  pose proof (q_range H S u w T U). assert (0 < H * S) by nra. nra.
Qed.

Theorem curvature H S u w : 0 < S <= H -> 0 <= u <= 1 -> (S = H -> 0 < u < 1) ->
  let Phi := fun w => D H S u (sigma H w) in
  ex_derive_n Phi 2 w /\
  0 <= slope S w ^ 2 * Derive_n Phi 2 w <= (1 + (S / H) ^ 2) * (H * S / 16).
Proof.
  intros T U I Phi.
  assert (E : forall w, Derive Phi w = (sigma H w - u) / slope S w).
  { intro x. apply is_derive_unique, divergence_derive; try lra. now split. }
  destruct (curvature_of_slope H S u w T U) as [X B].
  split.
  - unfold ex_derive_n, Derive_n. eapply ex_derive_ext; [| exact X].
    intro. symmetry. apply E.
  - unfold Derive_n. now rewrite (Derive_ext _ _ _ E).
Qed.

Print Assumptions curvature_of_slope.
Print Assumptions curvature.
