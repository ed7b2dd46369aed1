(** Sums from 1 to n, the norm, and what stands for Taylor's formula.

    A vector of n entries is a function, of which 1, ..., n count. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
Open Scope R_scope.

Definition total (n : nat) (f : nat -> R) : R := sum_n_m f 1 n.
Definition norm (n : nat) (f : nat -> R) : R := sqrt (total n (fun i => f i ^ 2)).

(** * Sums *)

Lemma total_0 f : total 0 f = 0.
Proof. unfold total. now rewrite sum_n_m_zero by lia. Qed.

Lemma total_ext n f g : (forall i, f i = g i) -> total n f = total n g.
Proof. apply sum_n_m_ext. Qed.

Lemma total_S n f : total (S n) f = total n f + f (S n).
Proof. unfold total. rewrite sum_n_Sm; [easy | lia]. Qed.

Lemma total_le n f g : (forall i, (1 <= i <= n)%nat -> f i <= g i) ->
  total n f <= total n g.
Proof.
  induction n as [| n I]; intro L.
  - rewrite !total_0. apply Rle_refl.
  - rewrite !total_S. apply Rplus_le_compat; [apply I; intros |]; apply L; lia.
Qed.

Lemma total_lt n f g : (forall i, (1 <= i <= n)%nat -> f i <= g i) ->
  (exists i, (1 <= i <= n)%nat /\ f i < g i) -> total n f < total n g.
Proof.
  induction n as [| n I]; intros L [i [N X]]; [lia |]. rewrite !total_S.
  destruct (Nat.eq_dec i (S n)) as [-> | E].
  - apply Rplus_le_lt_compat; [apply total_le; intros; apply L; lia | easy].
  - apply Rplus_lt_le_compat; [| apply L; lia].
    apply I; [intros; apply L; lia | exists i; split; [lia | easy]].
Qed.

Lemma total_scal n c f : total n (fun i => c * f i) = c * total n f.
Proof.
  unfold total. now rewrite <- (sum_n_m_mult_l (K := R_Ring) c f).
Qed.

Lemma total_nonneg n f : (forall i, 0 <= f i) -> 0 <= total n f.
Proof.
  intro. replace 0 with (total n (fun _ => 0 * 0)).
  - apply total_le. intros. rewrite Rmult_0_l. apply H.
  - rewrite total_scal. ring.
Qed.

Lemma norm_scal d c g : 0 <= c -> sqrt (total d (fun i => c ^ 2 * g i ^ 2)) = c * norm d g.
Proof.
  intro. unfold norm. rewrite total_scal, sqrt_mult, sqrt_pow2; try easy.
  - apply pow2_ge_0.
  - apply total_nonneg. intro. apply pow2_ge_0.
Qed.

Lemma total_plus n f g : total n (fun i => f i + g i) = total n f + total n g.
Proof. exact (sum_n_m_plus f g 1 n). Qed.

Lemma total_minus n f g : total n (fun i => f i - g i) = total n f - total n g.
Proof.
  unfold Rminus. rewrite total_plus. f_equal.
  replace (- total n g) with (-1 * total n g) by ring. rewrite <- total_scal.
  apply sum_n_m_ext. intro. simpl. ring.
Qed.

(** * Taylor's formula, as an inequality *)

(** A function that begins without slope and is concave falls. *)
Lemma falls (A A' A'' : R -> R) :
  (forall r, 0 <= r <= 1 -> is_derive A r (A' r)) ->
  (forall r, 0 <= r <= 1 -> is_derive A' r (A'' r)) ->
  (forall r, 0 <= r <= 1 -> A'' r <= 0) -> A' 0 = 0 -> A 1 <= A 0.
Proof.
  intros D1 D2 N Z.
  assert (L : forall f f' b, (forall r, 0 <= r <= 1 -> is_derive f r (f' r)) ->
    0 <= b <= 1 -> exists c, 0 <= c <= b /\ f b - f 0 = f' c * (b - 0)).
  { intros f f' b E B. destruct (MVT_gen f 0 b f') as [c [X Y]];
      rewrite ?Rmin_left, ?Rmax_right in * by easy.
    - intros. apply E. lra.
    - intros. apply continuity_pt_filterlim, @ex_derive_continuous.
      eexists. apply E. lra.
    - now exists c. }
  destruct (L A A' 1 D1 ltac:(lra)) as [c [C E]].
  destruct (L A' A'' c D2 ltac:(lra)) as [s [X E']].
  pose proof (N s ltac:(lra)). assert (A' c <= 0) by nra. lra.
Qed.
