(** The notation of docs/theory.md, in one entry: equations (1), (3), (5) and
    (6), and what the other files need to know of it. *)

From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From Proofs Require Export Preliminaries.
Open Scope R_scope.

(** (1): the sigmoid of sharpness M, and its slope. *)
Definition sigma (M w : R) : R := 1 / (1 + exp (- (M * w))).
Definition slope (M w : R) : R := M / (2 * (1 + cosh (M * w))).

(** (3): the step of one score, of rate [eta] along [g]. *)
Definition step (S eta g w : R) : R := w - eta * g * slope S w.

(** The score of a mask entry v in (0, 1): v = sigma_H(w). *)
Definition score (H v : R) : R := ln (v / (1 - v)) / H.

(** (5): the second derivative of the potential, h''(v). *)
Definition h'' (H S v : R) : R :=
  1 / (slope H (score H v) * slope S (score H v)).

(** (6): the Bregman divergence of two mask entries, an integral that is
    improper where u is 0 or 1. *)
Definition inside (y : R) : Prop := 0 < y < 1.
Definition D (H S u v : R) : R :=
  RInt_gen (fun x => (u - x) * h'' H S x)
    (at_point v) (within inside (locally u)).

(** * The slope is a slope *)

Lemma cosh_exp x : cosh x = (exp x + / exp x) / 2.
Proof. unfold cosh. now rewrite exp_Ropp. Qed.

Lemma sinh_exp x : sinh x = (exp x - / exp x) / 2.
Proof. unfold sinh. now rewrite exp_Ropp. Qed.

Lemma cosh_ge_1 x : 1 <= cosh x.
Proof.
  rewrite cosh_exp. pose proof (exp_pos x) as E.
  assert (0 <= (exp x - 1) ^ 2 / exp x) by
    (apply Rdiv_le_0_compat; [apply pow2_ge_0 | easy]).
  replace ((exp x - 1) ^ 2 / exp x) with (exp x + / exp x - 2) in H by
    (field; lra).
  lra.
Qed.

Lemma slope_sigma M w : slope M w = M * sigma M w * (1 - sigma M w).
Proof.
  unfold slope, sigma. rewrite cosh_exp, exp_Ropp.
  pose proof (exp_pos (M * w)). field.
  pose proof (Rinv_0_lt_compat _ H). repeat split; nra.
Qed.

Lemma sigma_inside M w : inside (sigma M w).
Proof.
  unfold inside, sigma. pose proof (exp_pos (- (M * w))).
  split.
  - apply Rdiv_lt_0_compat; lra.
  - apply Rmult_lt_reg_r with (1 + exp (- (M * w))); [lra |].
    field_simplify; lra.
Qed.

(** (1) and (2): the slope is positive and at most M/4, and the derivative. *)
Lemma slope_pos M w : 0 < M -> 0 < slope M w.
Proof.
  intro. unfold slope. pose proof (cosh_ge_1 (M * w)).
  apply Rdiv_lt_0_compat; lra.
Qed.

Lemma slope_le M w : 0 < M -> slope M w <= M / 4.
Proof.
  intro. rewrite slope_sigma. pose proof (sigma_inside M w) as I.
  assert (0 <= M * (sigma M w - / 2) ^ 2) by
    (apply Rmult_le_pos; [lra | apply pow2_ge_0]).
  nra.
Qed.

Lemma sigma_derive M w : is_derive (sigma M) w (slope M w).
Proof.
  rewrite slope_sigma. unfold sigma.
  pose proof (exp_pos (- (M * w))).
  auto_derive; [lra | field; lra].
Qed.

Lemma cosh_derive x : is_derive cosh x (sinh x).
Proof. unfold cosh, sinh. auto_derive; [easy | lra]. Qed.

Lemma slope_derive M w : 0 < M ->
  is_derive (slope M) w (M * (1 - 2 * sigma M w) * slope M w).
Proof.
  intro.
  apply is_derive_ext with (fun w => M * sigma M w * (1 - sigma M w)).
  { intro. now rewrite slope_sigma. }
  rewrite slope_sigma.
  evar_last.
  { apply @is_derive_mult.
    - apply @is_derive_scal, sigma_derive.
    - apply @is_derive_minus; [apply @is_derive_const | apply sigma_derive].
    - intros; apply Rmult_comm. }
  rewrite slope_sigma. unfold minus, plus, opp, zero, mult, scal; simpl.
  unfold mult; simpl. ring.
Qed.

Lemma slope_continuous M w : 0 < M -> continuous (slope M) w.
Proof.
  intro. apply @ex_derive_continuous. eexists. now apply slope_derive.
Qed.

Lemma slope_even M w : slope M (- w) = slope M w.
Proof.
  unfold slope, cosh. rewrite <- Ropp_mult_distr_r, Ropp_involutive.
  now rewrite (Rplus_comm (exp _)).
Qed.

Lemma slope_0 M : slope M 0 = M / 4.

Proof. unfold slope. rewrite Rmult_0_r, cosh_0. field. Qed.

(** * The score of a mask entry *)

Lemma score_sigma H w : 0 < H -> score H (sigma H w) = w.
Proof.
  intro. unfold score.
  replace (sigma H w / (1 - sigma H w)) with (exp (H * w)).
  { rewrite ln_exp. field; lra. }
  unfold sigma. rewrite exp_Ropp. pose proof (exp_pos (H * w)) as E.
  pose proof (Rinv_0_lt_compat _ E). field. lra.
Qed.

Lemma sigma_score H v : 0 < H -> inside v -> sigma H (score H v) = v.
Proof.
  unfold inside, sigma, score. intros.
  replace (H * (ln (v / (1 - v)) / H)) with (ln (v / (1 - v))) by (field; lra).
  rewrite exp_Ropp, exp_ln by (apply Rdiv_lt_0_compat; lra).
  field. lra.
Qed.

Lemma h''_sigma H S w : 0 < H -> h'' H S (sigma H w) = 1 / (slope H w * slope S w).
Proof. intro. unfold h''. now rewrite score_sigma. Qed.

Lemma h''_pos H S v : 0 < H -> 0 < S -> 0 < h'' H S v.
Proof.
  intros. unfold h''.
  apply Rdiv_lt_0_compat, Rmult_lt_0_compat; try apply slope_pos; lra.
Qed.

Lemma score_continuous H v : 0 < H -> inside v -> continuous (score H) v.
Proof.
  unfold inside, score. intros. apply @ex_derive_continuous.
  auto_derive. repeat split; try lra. apply Rdiv_lt_0_compat; lra.
Qed.

Lemma h''_continuous H S v : 0 < H -> 0 < S -> inside v -> continuous (h'' H S) v.
Proof.
  intros. unfold h''. apply @continuous_mult; [apply continuous_const |].
  pose proof (slope_pos H (score H v) H0). pose proof (slope_pos S (score H v) H1).
  apply (continuous_comp (fun v => slope H (score H v) * slope S (score H v)) Rinv).
  - apply @continuous_mult; apply continuous_comp;
      try apply score_continuous; try apply slope_continuous; easy.
  - apply continuity_pt_filterlim, continuity_pt_inv;
      [apply continuity_pt_id | nra].
Qed.

Lemma sigma_continuous M w : continuous (sigma M) w.
Proof. apply @ex_derive_continuous. eexists. apply sigma_derive. Qed.

Lemma sigma_increasing M x y : 0 < M -> x < y -> sigma M x < sigma M y.
Proof.
  intros. unfold sigma.
  assert (exp (- (M * y)) < exp (- (M * x))) by (apply exp_increasing; nra).
  pose proof (exp_pos (- (M * y))).
  apply Rmult_lt_compat_l, Rinv_lt_contravar; try lra. nra.
Qed.
