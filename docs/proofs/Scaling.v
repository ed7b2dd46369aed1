(** Claim two-temperature.scaling, (12) of docs/theory.md.

    For every c > 0, putting (c H, c S, eta / c^2, w_1 / c) for
    (H, S, eta, w_1) leaves every mask v_t unchanged, whatever function of the
    masks the vectors g_t are: of those so far, and of chance, which is any
    dependence on t. Indeed x = H w follows

      x+ = x - eta H S g sigma_1'(rho x),    v = sigma_1(x),    rho = S / H.

    For any H, S > 0, rates that change with t, and any entries. *)

From Coq Require Import Reals Lra Lia.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature.
Open Scope R_scope.

(** A vector for every time and all masks so far: entry i of g_t. *)
Definition rule : Type := nat -> (nat -> nat -> R) -> nat -> R.

Definition of_the_past (g : rule) : Prop := forall t v v' i,
  (forall s j, (s <= t)%nat -> v s j = v' s j) -> g t v i = g t v' i.

(** Scores that follow by steps (3) of rates [eta t]. *)
Definition follows (H S : R) (eta : nat -> R) (g : rule) (w : nat -> nat -> R) : Prop :=
  forall t i, w (t + 1)%nat i =
    step S (eta t) (g t (fun s j => sigma H (w s j)) i) (w t i).

Lemma slope_1 S H w : 0 < H -> slope S w = S * slope 1 (S / H * (H * w)).
Proof.
  intro. unfold slope. replace (1 * (S / H * (H * w))) with (S * w) by (field; lra).
  field. pose proof (cosh_ge_1 (S * w)). lra.
Qed.

Lemma sigma_1 H w : sigma H w = sigma 1 (H * w).
Proof. unfold sigma. now rewrite Rmult_1_l. Qed.

Theorem only_the_ratio (H S eta g w : R) : 0 < H -> 0 < S ->
  let x := H * w in
  H * step S eta g w = x - eta * H * S * g * slope 1 (S / H * x) /\
  sigma H w = sigma 1 x.
Proof.
  intros HP SP x. split; [| apply sigma_1].
  unfold step, x. rewrite (slope_1 S H w HP). ring.
Qed.

Theorem scaling (H S c : R) (eta : nat -> R) (g : rule) (w w' : nat -> nat -> R) :
  0 < H -> 0 < S -> 0 < c -> of_the_past g ->
  (forall i, w' 0%nat i = w 0%nat i / c) ->
  follows H S eta g w -> follows (c * H) (c * S) (fun t => eta t / c ^ 2) g w' ->
  forall t i, sigma (c * H) (w' t i) = sigma H (w t i).
Proof.
  intros HP SP CP G W0 F F'.
  assert (A : forall t s i, (s <= t)%nat -> c * w' s i = w s i).
  { induction t as [| t I]; intros s i L.
    - replace s with 0%nat by lia. rewrite W0. field. lra.
    - destruct (Nat.eq_dec s (Datatypes.S t)) as [-> | N]; [| apply I; lia].
      replace (Datatypes.S t) with (t + 1)%nat by lia. rewrite F, F'.
      rewrite (G t _ (fun s j => sigma H (w s j))).
      + unfold step. rewrite <- (I t i ltac:(lia)).
        replace (slope (c * S) (w' t i)) with (c * slope S (c * w' t i)).
        * field. lra.
        * unfold slope. replace (c * S * w' t i) with (S * (c * w' t i)) by ring.
          field. pose proof (cosh_ge_1 (S * (c * w' t i))). lra.
      + intros r j R. rewrite <- (I r j R). unfold sigma. do 4 f_equal. ring. }
  intros t i. rewrite <- (A t t i ltac:(lia)). unfold sigma. do 4 f_equal. ring.
Qed.

Print Assumptions only_the_ratio.
Print Assumptions scaling.
