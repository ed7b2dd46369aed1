(** Claims spectral.forward-substitution, spectral.gated-spectrum (1) and
    spectral.gated-substitution: (24), (32) and (33) of docs/theory.md.

    With A = Phi Lambda Phi^-1, bundles W_ij, the blocks of A below its
    diagonal, z_i = sum_{j<i} W_ij a_j, s_1 = a_1 and
    s_i = a_i - phi_{i-1} s_{i-1},

      z_i = phi_{i-1} (L_{i-1} s_{i-1}) - L_i (phi_{i-1} s_{i-1}).         (24)

    In the gated form, A' = Lambda Phi^-1, the blocks are 0 above the diagonal,
    L_i on it, below it

      W_ij = (-1)^(i-j) L_i phi_{i-1} ... phi_j,                          (32)

    and with u_i = phi_{i-1} s_{i-1}

      z_i = - L_i u_i.                                                    (33)

    For all numbers of blocks, all sizes and any ring, as in Inverse.v. The L_i
    need not be diagonal, and a_i may have several columns, one a sample. The
    a_i are any: that they are f(z_i) is not used. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Proofs Require Import Inverse.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory.
Open Scope ring_scope.

Section Network.

Variables (R : ringType) (B m : nat) (N : nat -> nat).
Variable phi : forall k, 'M[R]_(N k.+1, N k).
Variable L : forall k, 'M[R]_(N k).

Definition Lambda : 'M[R]_(\sum_(i < B.+1) N i) := \mxdiag_i L i.

(** Phi^-1, by [inverse_by_powers]. *)
Notation Phi := (Phi B phi).
Notation inverse := (by_powers Phi B).

Definition adjacency := Phi *m Lambda *m inverse.
Definition gated := Lambda *m inverse.

(** What enters layer i through bundles from the layers before it. *)
Definition entering (A : 'M[R]_(\sum_(i < B.+1) N i)) (a : forall k, 'M[R]_(N k, m))
    (i : 'I_B.+1) : 'M_(N i, m) :=
  \sum_(j < B.+1 | (j < i)%N) submxblock A i j *m a j.

Fixpoint s (a : forall k, 'M[R]_(N k, m)) k : 'M_(N k, m) :=
  if k is k'.+1 then a k'.+1 - phi k' *m s a k' else a 0%N.

Definition u a k : 'M_(N k.+1, m) := phi k *m s a k.

(** * Products with vectors *)

Definition column (c : forall k, 'M[R]_(N k, m)) : 'M_(\sum_(i < B.+1) N i, m) :=
  \mxcol_i c i.

Lemma times_column (A : 'M[R]_(\sum_(i < B.+1) N i)) c i :
  submxcol (A *m column c) i = \sum_j submxblock A i j *m c j.
Proof. by rewrite -{1}(submxblockK A) mul_mxblock_mxrow mxcolK. Qed.

Lemma Phi_times c k lt_k :
  submxcol (Phi *m column c) (@Ordinal B.+1 k.+1 lt_k) = c k.+1 + phi k *m c k.
Proof.
have [diagonal [below else0]] := Phi_blocks B phi.
have lt_k' : (k < B.+1)%N by apply: ltnW.
rewrite times_column (bigD1 (Ordinal lt_k)) // (bigD1 (Ordinal lt_k')); last first.
  by rewrite -val_eqE /= ltn_eqF.
rewrite /= diagonal mul1mx below addrA big1 ?addr0 // => j /andP[j_neq /eqP j_neq'].
rewrite else0 ?mul0mx // => [ij|[ij]]; first by rewrite ij eqxx in j_neq.
by case: j_neq'; apply: val_inj.
Qed.

Lemma Phi_times0 c lt_0 : submxcol (Phi *m column c) (@Ordinal B.+1 0 lt_0) = c 0%N.
Proof.
have [diagonal [_ else0]] := Phi_blocks B phi.
rewrite times_column (bigD1 (Ordinal lt_0)) //= diagonal mul1mx big1 ?addr0 // => j /eqP j_neq.
by rewrite else0 ?mul0mx // => ij; case: j_neq.
Qed.

Lemma Lambda_times c : Lambda *m column c = column (fun k => L k *m c k).
Proof. exact: mul_mxdiag_mxcol. Qed.

(** s = Phi^-1 a. *)
Lemma substituted a : inverse *m column a = column (s a).
Proof.
have [_ left] := inverse_by_powers B phi.
suff <- : Phi *m column (s a) = column a by rewrite mulmxA left mul1mx.
rewrite -[LHS]submxcolK -[RHS]submxcolK; apply/eq_mxcol => -[[|k] lt_k].
  by rewrite Phi_times0 /column mxcolK.
by rewrite Phi_times /column mxcolK /= subrK.
Qed.

(** ** Layers from i on do not matter *)

Definition before (i : nat) (a : forall k, 'M[R]_(N k, m)) k : 'M_(N k, m) :=
  if (k < i)%N then a k else 0.

Lemma entering_before A a i : entering A a i = submxcol (A *m column (before i a)) i.
Proof.
rewrite times_column /entering big_mkcond; apply: eq_bigr => j _.
by rewrite /before; case: ifP => // _; rewrite mulmx0.
Qed.

Lemma s_before a i k : (k < i)%N -> s (before i a) k = s a k.
Proof.
elim: k => [|k IH] lt_k /=; rewrite /before lt_k // -/(before i a) IH //.
exact: ltnW.
Qed.

Lemma s_at a k : s (before k.+1 a) k.+1 = - (phi k *m s a k).
Proof. by rewrite /= s_before // /before ltnn add0r. Qed.

(** * (24) *)

Theorem forward_substitution a k lt_k :
  entering adjacency a (@Ordinal B.+1 k.+1 lt_k)
  = phi k *m (L k *m s a k) - L k.+1 *m (phi k *m s a k).
Proof.
rewrite entering_before -mulmxA substituted -mulmxA Lambda_times Phi_times.
by rewrite s_at s_before // mulmxN addrC.
Qed.

(** * The gated form *)

(** (33) *)
Theorem gated_substitution a k lt_k :
  entering gated a (@Ordinal B.+1 k.+1 lt_k) = - (L k.+1 *m u a k).
Proof.
rewrite entering_before -mulmxA substituted Lambda_times /column mxcolK.
by rewrite s_at mulmxN.
Qed.

(** (32), with the blocks on the diagonal (n = 0) and above it. *)
Theorem gated_blocks :
  (forall n j lt_i lt_j,
    submxblock gated (@Ordinal B.+1 (n + j) lt_i) (@Ordinal B.+1 j lt_j)
    = (L (n + j) *m chain phi n j) *~ (-1) ^+ n) /\
  (forall i j : 'I_B.+1, (i < j)%N -> submxblock gated i j = 0).
Proof.
have [blocks above] := inverse_by_blocks B phi.
have rows i j : submxblock gated i j = L i *m submxblock inverse i j.
  by rewrite /gated -{1}(submxblockK inverse) mul_mxdiag_mxblock mxblockK.
split=> [n j lt_i lt_j|i j ij]; rewrite rows; last by rewrite above // mulmx0.
by rewrite blocks (raddfMz [additive of mulmx _]).
Qed.

End Network.

Print Assumptions forward_substitution.
Print Assumptions gated_substitution.
Print Assumptions gated_blocks.
