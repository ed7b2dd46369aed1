(** Claims S.nilpotent, S.inverse and S.inverse-blocks: [S] (A.2) to (A.5),
    (4.1) and (4.2), which docs/theory.md has in spectral.error-of-powers.

    For every number of blocks B, all sizes N_0, ..., N_B of layers and all
    blocks phi_i over any ring, commutative or not, let Phi have identities on
    its diagonal and the phi_i below it. Then

      (Phi - I)^n has the blocks phi_{i-1} ... phi_j at i - j = n and no others,
      (Phi - I)^(B+1) = 0,
      Phi^-1 = sum_{i=0}^B (-1)^i C(B+1, i+1) Phi^i,                     (4.1)
      block (i, j) of Phi^-1 is (-1)^(i-j) phi_{i-1} ... phi_j,          (4.2)

    the inverse from both sides. Layers are counted from 0 here: [phi k] leads
    from layer k to layer k + 1. [conform_mx 0 A] is A where its sizes are
    those that are asked for, as they are wherever it stands. *)

From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory.
Open Scope ring_scope.

(** Powers, of matrices without rows as well. *)
Definition power (R : ringType) n (X : 'M[R]_n) k := iter k (mulmx X) 1%:M.

(** The right side of (4.1). *)
Definition by_powers (R : ringType) n (X : 'M[R]_n) B : 'M_n :=
  \sum_(i < B.+1) power X i *~ ((-1) ^+ i * 'C(B.+1, i.+1)%:Z).

(** * Any matrix *)

Lemma any_element (A : ringType) (x : A) B :
  x * (\sum_(i < B.+1) x ^+ i *~ ((-1) ^+ i * 'C(B.+1, i.+1)%:Z))
  = 1 - (1 - x) ^+ B.+1.
Proof.
rewrite exprDn_comm; last by rewrite /GRing.comm mul1r mulr1.
rewrite [in RHS]big_ord_recl /= expr1n mul1r expr0 bin0 mulr1n opprD addrA subrr add0r.
rewrite -sumrN mulr_sumr; apply: eq_bigr => i _.
rewrite /bump /= add1n expr1n mul1r [(- x) ^+ _]exprNn [(-1) ^+ _.+1]exprS !mulN1r mulNr mulNrn opprK.
rewrite -mulrzr rmorphM rmorphX rmorphN1 /= -pmulrn mulrA -exprS mulrA -commr_sign.
by rewrite mulr_natr commr_sign.
Qed.

Lemma telescope (V : zmodType) (u : nat -> V) m :
  \sum_(n < m) u n - \sum_(n < m) u n.+1 = u 0%N - u m.
Proof.
rewrite -sumrB -[RHS]opprB -(telescope_sumr u (leq0n m)) big_mkord -sumrN.
by apply: eq_bigr => n _; rewrite opprB.
Qed.

Section AnyMatrix.

Variables (R : ringType) (n : nat) (X : 'M[R]_n).

Lemma power_comm k : power X k *m X = X *m power X k.
Proof. by elim: k => [|k IH]; rewrite ?mul1mx ?mulmx1 //= -mulmxA IH. Qed.

Lemma power_opp k : power X k = 0 -> power (- X) k = 0.
Proof.
have: power (- X) k = power X k \/ power (- X) k = - power X k.
  elim: k => [|k [] IH]; first by left.
  - by right; rewrite /= IH mulNmx.
  - by left; rewrite /= IH mulNmx mulmxN opprK.
by case=> -> -> //; rewrite oppr0.
Qed.

Lemma mulmxMz (Y : 'M[R]_n) z : X *m (Y *~ z) = (X *m Y) *~ z.
Proof. exact: (raddfMz [additive of mulmx X]). Qed.

Lemma mulMzmx (Y : 'M[R]_n) z : Y *~ z *m X = (Y *m X) *~ z.
Proof. exact: (raddfMz [additive of mulmxr X]). Qed.

Lemma by_powers_comm B : by_powers X B *m X = X *m by_powers X B.
Proof.
rewrite /by_powers mulmx_suml mulmx_sumr; apply: eq_bigr => i _.
by rewrite mulmxMz mulMzmx power_comm.
Qed.

End AnyMatrix.

(** X sum_{i=0}^B (-1)^i C(B+1, i+1) X^i = I - (I - X)^(B+1). *)
Theorem any_matrix (R : ringType) n (X : 'M[R]_n) B :
  X *m by_powers X B = 1%:M - power (1%:M - X) B.+1.
Proof.
case: n X => [|n] X; first by rewrite [LHS]flatmx0 [RHS]flatmx0.
have powerE (Y : 'M[R]_n.+1) k : power Y k = Y ^+ k.
  by elim: k => // k IH; rewrite exprS /= IH.
rewrite powerE /by_powers -any_element; congr (_ *m _).
by apply: eq_bigr => i _; rewrite powerE.
Qed.

(** * Networks *)

Section Network.

Variables (R : ringType) (B : nat) (N : nat -> nat).
Variable phi : forall k, 'M[R]_(N k.+1, N k).

Definition Phi : 'M[R]_(\sum_(i < B.+1) N i) :=
  \mxblock_(i, j)
    if i == j then conform_mx 0 (1%:M : 'M_(N j))
    else if i == j.+1 :> nat then conform_mx 0 (phi j) else 0.

(** phi_{i-1} ... phi_j for i = n + j. *)
Fixpoint chain n j : 'M[R]_(N (n + j), N j) :=
  if n is n'.+1 then phi (n' + j) *m chain n' j else 1%:M.

(** The matrix with these blocks at i - j = n, and no others. *)
Definition below n : 'M[R]_(\sum_(i < B.+1) N i) :=
  \mxblock_(i, j) if i == (n + j)%N :> nat then conform_mx 0 (chain n j) else 0.

Lemma below0 : below 0 = 1%:M.
Proof.
rewrite -mxdiagZ; apply/eq_mxblock => i j.
have -> : (i == (0 + j)%N :> nat) = (i == j) by [].
by case: eqP => // ->.
Qed.

Lemma PhiE : Phi = 1%:M + below 1.
Proof.
rewrite -mxdiagZ /mxdiag /below -mxblockD; apply/eq_mxblock => i j.
have -> : (i == (1 + j)%N :> nat) = (i == j.+1 :> nat) by [].
rewrite /= mulmx1; case: eqP => [->|_]; last by rewrite add0r.
by rewrite ltn_eqF // addr0.
Qed.

Lemma belowS n : below 1 *m below n = below n.+1.
Proof.
rewrite mul_mxblock; apply/eq_mxblock => i j; case: ifP => [/eqP ij|ij].
  have lt_k : (n + j < B.+1)%N by apply: leq_trans (ltn_ord i); rewrite ij.
  rewrite (bigD1 (Ordinal lt_k)) //= big1 ?addr0 => [|k /negPf k_neq]; last first.
    by rewrite -val_eqE /= in k_neq; rewrite k_neq mulmx0.
  rewrite eqxx /=; have -> : (i == (1 + (n + j))%N :> nat) by rewrite ij.
  case: i ij => i lt_i /= ij; move: lt_i; rewrite ij => lt_i /=.
  by rewrite !conform_mx_id mulmx1.
apply: big1 => k _; case: eqP => [ik|_]; last by rewrite mul0mx.
case: eqP => [kj|_]; last by rewrite mulmx0.
by rewrite ik kj eqxx in ij.
Qed.

Lemma below_large n : (B < n)%N -> below n = 0.
Proof.
move=> lt_n; rewrite -[RHS]mxblock0; apply/eq_mxblock => i j; case: eqP => // ij.
by have := ltn_ord i; rewrite ij ltnS leqNgt (leq_trans lt_n) ?leq_addr.
Qed.

Lemma below_block n j lt_i lt_j :
  submxblock (below n) (@Ordinal B.+1 (n + j) lt_i) (@Ordinal B.+1 j lt_j) = chain n j.
Proof. by rewrite mxblockK /= eqxx conform_mx_id. Qed.

Lemma below_else n (i j : 'I_B.+1) : (i : nat) <> (n + j)%N -> submxblock (below n) i j = 0.
Proof. by move/eqP/negPf => ij; rewrite mxblockK ij. Qed.

(** ** The matrix is the one that is meant *)

Theorem Phi_blocks :
  (forall i, submxblock Phi i i = 1%:M) /\
  (forall k lt_i lt_j,
    submxblock Phi (@Ordinal B.+1 k.+1 lt_i) (@Ordinal B.+1 k lt_j) = phi k) /\
  (forall i j : 'I_B.+1, i <> j -> (i : nat) <> j.+1 -> submxblock Phi i j = 0).
Proof.
split=> [i|]; first by rewrite mxblockK eqxx conform_mx_id.
split=> [k lt_i lt_j|i j ij ij']; rewrite mxblockK.
  by rewrite -val_eqE /= gtn_eqF // eqxx conform_mx_id.
by move/eqP/negPf: ij => ->; move/eqP/negPf: ij' => ->.
Qed.

(** ** S.nilpotent *)

Lemma powers_of_the_rest n : power (Phi - 1%:M) n = below n.
Proof.
rewrite PhiE addrAC subrr add0r.
by elim: n => [|n IH]; [rewrite below0 | rewrite /= IH belowS].
Qed.

Theorem nilpotent_blocks n :
  (forall j lt_i lt_j,
    submxblock (power (Phi - 1%:M) n)
      (@Ordinal B.+1 (n + j) lt_i) (@Ordinal B.+1 j lt_j) = chain n j) /\
  (forall i j : 'I_B.+1, (i : nat) <> (n + j)%N ->
    submxblock (power (Phi - 1%:M) n) i j = 0).
Proof.
rewrite powers_of_the_rest.
by split=> *; [rewrite below_block | rewrite below_else].
Qed.

Theorem nilpotent : power (Phi - 1%:M) B.+1 = 0.
Proof. by rewrite powers_of_the_rest below_large. Qed.

(** ** S.inverse *)

Theorem inverse_by_powers :
  Phi *m by_powers Phi B = 1%:M /\ by_powers Phi B *m Phi = 1%:M.
Proof.
rewrite by_powers_comm any_matrix.
have -> : power (1%:M - Phi) B.+1 = 0 by rewrite -opprB power_opp // nilpotent.
by rewrite subr0.
Qed.

(** ** S.inverse-blocks *)

Definition by_blocks : 'M[R]_(\sum_(i < B.+1) N i) :=
  \mxblock_(i, j)
    if (j <= i)%N then conform_mx 0 (chain (i - j) j) *~ (-1) ^+ (i - j) else 0.

Lemma by_blocksE : by_blocks = \sum_(n < B.+1) below n *~ (-1) ^+ n.
Proof.
rewrite -[RHS]submxblockK; apply/eq_mxblock => i j.
rewrite (big_morph (fun A : 'M[R]_(_, _) => submxblock A i j)
  (fun A A' => submxblockD A A' i j) (submxblock0 i j)).
have one n : submxblock (below n *~ (-1) ^+ n) i j =
    if i == (n + j)%N :> nat then conform_mx 0 (chain n j) *~ (-1) ^+ n else 0.
  have -> : submxblock (below n *~ (-1) ^+ n) i j = submxblock (below n) i j *~ (-1) ^+ n.
    by rewrite -!scaler_int; apply/matrixP => k l; rewrite !mxE.
  by rewrite mxblockK; case: eqP => // _; rewrite mul0rz.
rewrite (eq_bigr _ (fun (n : 'I_B.+1) _ => one n)).
case: leqP => [le_ji|lt_ij]; last first.
  by rewrite big1 // => n _; rewrite ltn_eqF // ltn_addl.
have lt_n : (i - j < B.+1)%N by apply: leq_ltn_trans (leq_subr _ _) (ltn_ord i).
rewrite (bigD1 (Ordinal lt_n)) //=; have -> : i == (i - j + j)%N :> nat by rewrite subnK.
rewrite big1 ?addr0 // => n.
rewrite -val_eqE /= => n_neq; case: eqP => // ij.
by rewrite ij addnK eqxx in n_neq.
Qed.

Lemma by_blocks_by_powers : by_powers Phi B = by_blocks.
Proof.
have right : Phi *m by_blocks = 1%:M.
  rewrite by_blocksE PhiE mulmxDl mul1mx mulmx_sumr.
  rewrite [X in _ + X](eq_bigr (fun n : 'I_B.+1 => - (below n.+1 *~ (-1) ^+ n.+1))).
    rewrite sumrN (telescope (fun n => below n *~ (-1) ^+ n)) below0 below_large //.
    by rewrite mul0rz subr0.
  by move=> n _; rewrite mulmxMz belowS exprS mulN1r mulrNz opprK.
have [_ left] := inverse_by_powers.
by rewrite -[RHS]mul1mx -left -mulmxA right mulmx1.
Qed.

Theorem inverse_by_blocks :
  (forall n j lt_i lt_j,
    submxblock (by_powers Phi B) (@Ordinal B.+1 (n + j) lt_i) (@Ordinal B.+1 j lt_j)
    = chain n j *~ (-1) ^+ n) /\
  (forall i j : 'I_B.+1, (i < j)%N -> submxblock (by_powers Phi B) i j = 0).
Proof.
rewrite by_blocks_by_powers; split=> [n j lt_i lt_j|i j ij]; rewrite mxblockK.
  by rewrite /= leq_addl addnK conform_mx_id.
by rewrite leqNgt ij.
Qed.

End Network.

Print Assumptions any_matrix.
Print Assumptions Phi_blocks.
Print Assumptions nilpotent_blocks.
Print Assumptions nilpotent.
Print Assumptions inverse_by_powers.
Print Assumptions inverse_by_blocks.
