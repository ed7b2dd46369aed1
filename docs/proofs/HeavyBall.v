(** Claim two-temperature.heavy-ball, corollary 6 of the theorem (16) of
    docs/theory.md.

    Let m_0 = 0, m_t = mu m_{t-1} + g_t sigma_S'(w_t) and
    w_{t+1} = w_t - eta m_t, with 0 <= mu < 1. With eta' = eta / (1 - mu),
    delta' = eta' G S^2 / 4 and mu e^delta' < 1, for any vectors g_t with
    entries of size at most G and every u in [0, 1]^d, in (0, 1)^d if S = H,

      sum_t <g_t, v_t - u> <= (D(u, v_1) - D(u, v')) / eta'
        + eta' (1 + (S/H)^2) H S / 32 e^(2 delta' / (1 - mu))
          (1 + 2 mu e^-delta' / (1 - mu e^delta')) sum_t |g_t|^2,

    v' = sigma_H(w_{T+1} - eta' mu m_T) being where the run is heading.

    The proof is that of the page, but for its double sum over t and k: a
    sequence b_t with b_{t+1} = mu e^delta' (b_t + |g_t|) bounds the momentum,
    and b_t^2 is a potential. *)

From Coq Require Import Reals Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Proofs Require Import TwoTemperature Divergence Curvature Regret.
Open Scope R_scope.

(** * Its second derivative near a score *)

Section Entry.

Variables H S u : R.
Hypothesis T : 0 < S <= H.
Hypothesis F : finite H S u.

Let N := (1 + (S / H) ^ 2) * (H * S / 16).
Let Phi x := D H S u (sigma H x).
Let Phi' x := (sigma H x - u) / slope S x.

Lemma Phi_derive x : is_derive Phi x (Phi' x).
Proof. apply divergence_derive; try lra. exact F. Qed.

Lemma Phi'_derive x : is_derive Phi' x (Derive Phi' x).
Proof. apply Derive_correct, (curvature_of_slope H S u); [easy | apply F]. Qed.

Lemma Phi''_le r w x : S * Rabs (x - w) <= r ->
  0 <= Derive Phi' x <= N * exp (2 * r) / slope S w ^ 2.
Proof.
  intro B. destruct (curvature_of_slope H S u x T (proj1 F)) as [_ C].
  fold N in C. change (fun w => _) with Phi' in C.
  pose proof (slope_pos S w ltac:(lra)). pose proof (slope_pos S x ltac:(lra)).
  assert (0 < slope S x ^ 2) by nra. assert (0 < slope S w ^ 2) by nra.
  split; [nra |].
  pose proof (slope_ratio S w x ltac:(lra)) as Q.
  assert (X : exp (S * Rabs (x - w)) <= exp r).
  { destruct B as [B | B]; [left; now apply exp_increasing | right; now f_equal]. }
  assert (Y : slope S w <= exp r * slope S x) by nra.
  assert (Z : slope S w ^ 2 <= exp (2 * r) * slope S x ^ 2).
  { replace (2 * r) with (r + r) by ring. rewrite exp_plus.
    replace (exp r * exp r * slope S x ^ 2) with ((exp r * slope S x) ^ 2) by ring.
    apply pow_incr. lra. }
  apply Rmult_le_reg_r with (slope S w ^ 2); [easy |].
  replace (N * exp (2 * r) / slope S w ^ 2 * slope S w ^ 2) with (exp (2 * r) * N) by
    (field; lra).
  apply Rle_trans with (Derive Phi' x * (exp (2 * r) * slope S x ^ 2)).
  - apply Rmult_le_compat_l; nra.
  - replace (Derive Phi' x * (exp (2 * r) * slope S x ^ 2)) with
      (exp (2 * r) * (slope S x ^ 2 * Derive Phi' x)) by ring.
    apply Rmult_le_compat_l; [left; apply exp_pos | lra].
Qed.

(** Phi' at w + a in place of w. *)
Lemma first_order w a r : S * Rabs a <= r ->
  Rabs (Phi' (w + a) - Phi' w) <= N * exp (2 * r) / slope S w ^ 2 * Rabs a.
Proof.
  intro B.
  destruct (MVT_gen Phi' w (w + a) (Derive Phi')) as [c [C E]].
  - intros. apply Phi'_derive.
  - intros. apply continuity_pt_filterlim, (@ex_derive_continuous _ _ Phi').
    eexists. apply Phi'_derive.
  - replace (w + a - w) with a in E by ring. rewrite E, Rabs_mult.
    apply Rmult_le_compat_r; [apply Rabs_pos |].
    assert (Q : S * Rabs (c - w) <= r).
    { apply Rle_trans with (2 := B). apply Rmult_le_compat_l; [lra |].
      pose proof (Rle_abs a). pose proof (Rle_abs (- a)) as Ra. rewrite Rabs_Ropp in Ra.
      apply Rabs_le. unfold Rmin, Rmax in C. destruct Rle_dec; lra. }
    pose proof (Phi''_le r w c Q). rewrite Rabs_right; lra.
Qed.

(** The rest of a step from w + a. *)
Lemma second_order w a h r : S * Rabs a <= r -> S * Rabs (a + h) <= r ->
  Phi (w + a + h) <=
    Phi (w + a) + Phi' (w + a) * h + N * exp (2 * r) / slope S w ^ 2 * (h ^ 2 / 2).
Proof.
  intros B B'. set (M := N * exp (2 * r) / slope S w ^ 2).
  set (A s := Phi (w + a + s * h) - Phi' (w + a) * (s * h) - M * (s * h) ^ 2 / 2).
  set (A' s := h * (Phi' (w + a + s * h) - Phi' (w + a)) - M * s * h ^ 2).
  set (A'' s := h ^ 2 * Derive Phi' (w + a + s * h) - M * h ^ 2).
  assert (line : forall s, is_derive (fun s => w + a + s * h) s h) by
    (intro; auto_derive; [easy | ring]).
  assert (K : A 1 <= A 0).
  { apply falls with A' A''.
    - intros s _. unfold A, A'.
      replace (h * (Phi' (w + a + s * h) - Phi' (w + a)) - M * s * h ^ 2) with
        (h * Phi' (w + a + s * h) - Phi' (w + a) * h - M * s * h ^ 2) by ring.
      apply @is_derive_minus; [apply @is_derive_minus |].
      + apply (is_derive_comp Phi (fun s => w + a + s * h)); [apply Phi_derive | apply line].
      + auto_derive; [easy | ring].
      + auto_derive; [easy | field].
    - intros s _. unfold A', A''. apply @is_derive_minus.
      + evar_last.
        { apply is_derive_scal. apply @is_derive_minus; [| apply @is_derive_const].
          apply (is_derive_comp Phi' (fun s => w + a + s * h)); [apply Phi'_derive | apply line]. }
        unfold minus, plus, opp, zero, scal; simpl. unfold mult; simpl. ring.
      + auto_derive; [easy | ring].
    - intros s I. unfold A''.
      assert (Q : S * Rabs (w + a + s * h - w) <= r).
      { replace (w + a + s * h - w) with ((1 - s) * a + s * (a + h)) by ring.
        pose proof (Rabs_triang ((1 - s) * a) (s * (a + h))) as R.
        rewrite !Rabs_mult, (Rabs_right (1 - s)), (Rabs_right s) in R by lra.
        apply Rle_trans with (S * ((1 - s) * Rabs a + s * Rabs (a + h)));
          [apply Rmult_le_compat_l; lra |].
        replace (S * ((1 - s) * Rabs a + s * Rabs (a + h))) with
          ((1 - s) * (S * Rabs a) + s * (S * Rabs (a + h))) by ring.
        nra. }
      pose proof (Phi''_le r w _ Q) as [_ P]. fold M in P.
      pose proof (pow2_ge_0 h). nra.
    - unfold A'. rewrite Rmult_0_l, Rplus_0_r. ring. }
  unfold A in K. rewrite Rmult_1_l, !Rmult_0_l, Rplus_0_r in K. nra.
Qed.

End Entry.

(** * One entry, all steps *)

Section Momentum.

Variables H S eta' mu G u : R.
Variables g w m : nat -> R.
Hypothesis T : 0 < S <= H.
Hypothesis F : finite H S u.
Hypothesis eta_pos : 0 < eta'.
Hypothesis mu_range : 0 <= mu < 1.

Let delta' := delta S eta' G.
Let q := mu * exp delta'.
Let N := (1 + (S / H) ^ 2) * (H * S / 16).

Hypothesis q_range : q < 1.
Hypothesis m_0 : m 0%nat = 0.

(** What bounds the momentum before step n + 1, by recursion. *)
Fixpoint b n := match n with O => 0 | Datatypes.S k => q * (b k + Rabs (g (Datatypes.S k))) end.

Lemma b_nonneg n : 0 <= b n.
Proof.
  assert (0 <= q) by (apply Rmult_le_pos; [lra | left; apply exp_pos]).
  induction n as [| n I]; simpl; [lra |].
  pose proof (Rabs_pos (g (Datatypes.S n))). apply Rmult_le_pos; lra.
Qed.

Lemma sum_of_b n :
  total n (fun t => Rabs (g t) * b (t - 1)) <= q / (1 - q) * total n (fun t => g t ^ 2).
Proof.
  assert (Q : 0 <= q) by (apply Rmult_le_pos; [lra | left; apply exp_pos]).
  destruct Q as [Q | Q].
  - assert (P : total n (fun t => Rabs (g t) * b (t - 1)) + b n ^ 2 / (2 * q) <=
      q / (1 - q) * total n (fun t => g t ^ 2)).
    { induction n as [| n I].
      - rewrite !total_0. simpl. right. field. lra.
      - rewrite !total_S. replace (Datatypes.S n - 1)%nat with n by lia. simpl b.
        rewrite <- (pow2_abs (g (Datatypes.S n))).
        set (x := Rabs (g (Datatypes.S n))) in *. set (y := b n) in *.
        assert (0 <= (1 - q ^ 2) / (2 * q) * (y - q / (1 - q) * x) ^ 2).
        { apply Rmult_le_pos; [apply Rdiv_le_0_compat; nra | apply pow2_ge_0]. }
        assert (x * y + (q * (y + x)) ^ 2 / (2 * q) - y ^ 2 / (2 * q) - q / (1 - q) * x ^ 2
          = - ((1 - q ^ 2) / (2 * q) * (y - q / (1 - q) * x) ^ 2)) by (field; lra).
        lra. }
    assert (0 <= b n ^ 2 / (2 * q)) by (apply Rdiv_le_0_compat; [apply pow2_ge_0 | lra]).
    lra.
  - assert (Z : forall k, b k = 0) by (intros [| k]; simpl; [| rewrite <- Q]; ring).
    rewrite (total_ext n _ (fun t => 0 * 0)) by (intro; rewrite Z; ring).
    rewrite total_scal, <- Q. unfold Rdiv. lra.
Qed.

Lemma step_of_momentum n : 0 <= G ->
  (forall t, (1 <= t <= n)%nat -> Rabs (g t) <= G /\
    m t = mu * m (t - 1)%nat + g t * slope S (w t) /\
    w (t + 1)%nat = w t - eta' * (1 - mu) * m t) ->
  Rabs (m n) <= G * (S / 4) / (1 - mu) /\
  eta' * mu * Rabs (m n) <= eta' * slope S (w (n + 1)%nat) * b n.
Proof.
  intros GP A. induction n as [| n I].
  - rewrite m_0, Rabs_R0. simpl. split; [| lra].
    apply Rdiv_le_0_compat; [apply Rmult_le_pos |]; lra.
  - destruct I as [I I']; [intros; apply A; lia |].
    destruct (A (Datatypes.S n)) as [B [M W]]; [lia |].
    replace (Datatypes.S n - 1)%nat with n in M by lia.
    replace (n + 1)%nat with (Datatypes.S n) in I' by lia.
    set (t := Datatypes.S n) in *.
    pose proof (slope_pos S (w t) ltac:(lra)) as P. pose proof (slope_le S (w t) ltac:(lra)).
    assert (Mb : Rabs (m t) <= mu * Rabs (m n) + Rabs (g t) * slope S (w t)).
    { rewrite M. eapply Rle_trans; [apply Rabs_triang |].
      rewrite !Rabs_mult, (Rabs_right mu), (Rabs_right (slope S (w t))); lra. }
    assert (Gb : Rabs (g t) * slope S (w t) <= G * (S / 4)) by
      (apply Rmult_le_compat; try lra; apply Rabs_pos).
    assert (Bound : Rabs (m t) <= G * (S / 4) / (1 - mu)).
    { apply Rle_trans with (mu * (G * (S / 4) / (1 - mu)) + G * (S / 4)); [nra |].
      right. field. lra. }
    split; [easy |].
    (* The slope changes by at most e^delta'. *)
    assert (R : slope S (w t) <= exp delta' * slope S (w (t + 1)%nat)).
    { eapply Rle_trans; [apply (slope_ratio S (w t) (w (t + 1)%nat)); lra |].
      apply Rmult_le_compat_r; [left; apply slope_pos; lra |].
      assert (X : S * Rabs (w (t + 1)%nat - w t) <= delta').
      { rewrite W. replace (w t - eta' * (1 - mu) * m t - w t) with
          (- (eta' * (1 - mu) * m t)) by ring.
        rewrite Rabs_Ropp, !Rabs_mult, (Rabs_right eta'), (Rabs_right (1 - mu)) by lra.
        apply Rle_trans with (S * (eta' * (1 - mu) * (G * (S / 4) / (1 - mu)))).
        - apply Rmult_le_compat_l; [lra |]. apply Rmult_le_compat_l; [nra | easy].
        - right. unfold delta', delta. field. lra. }
      destruct X as [X | X]; [left; now apply exp_increasing | right; now f_equal]. }
    simpl b. fold t.
    apply Rle_trans with (mu * (eta' * slope S (w t) * (b n + Rabs (g t)))).
    + replace (eta' * mu * Rabs (m t)) with (mu * (eta' * Rabs (m t))) by ring.
      apply Rmult_le_compat_l; [lra |].
      apply Rle_trans with (eta' * (mu * Rabs (m n) + Rabs (g t) * slope S (w t)));
        [apply Rmult_le_compat_l; lra | nra].
    + unfold q. pose proof (b_nonneg n). pose proof (Rabs_pos (g t)).
      replace (eta' * slope S (w (t + 1)%nat) * (mu * exp delta' * (b n + Rabs (g t)))) with
        (mu * (eta' * (exp delta' * slope S (w (t + 1)%nat)) * (b n + Rabs (g t)))) by ring.
      apply Rmult_le_compat_l; [lra |]. apply Rmult_le_compat_r; [lra |].
      apply Rmult_le_compat_l; lra.
Qed.

(** Where the scores would be if what moves them were paid at once. *)
Let y t := w t - eta' * mu * m (t - 1)%nat.
Let Phi x := D H S u (sigma H x).
Let E := exp (2 * delta' / (1 - mu)).

Lemma entry n : 0 <= G ->
  (forall t, (1 <= t <= n)%nat -> Rabs (g t) <= G /\
    m t = mu * m (t - 1)%nat + g t * slope S (w t) /\
    w (t + 1)%nat = w t - eta' * (1 - mu) * m t) ->
  eta' * total n (fun t => g t * (sigma H (w t) - u)) <=
    Phi (y 1%nat) - Phi (y (n + 1)%nat)
    + eta' ^ 2 * N * E * (total n (fun t => g t ^ 2) / 2
      + exp (- (2 * delta')) * total n (fun t => Rabs (g t) * b (t - 1))).
Proof.
  intros GP A. induction n as [| n I].
  - rewrite !total_0. simpl. right. field.
  - specialize (I ltac:(intros; apply A; lia)). rewrite !total_S.
    destruct (A (Datatypes.S n)) as [B [M W]]; [lia |].
    destruct (step_of_momentum n GP ltac:(intros; apply A; lia)) as [m1 m2].
    destruct (step_of_momentum (Datatypes.S n) GP A) as [m3 _].
    replace (Datatypes.S n - 1)%nat with n in * by lia.
    replace (n + 1)%nat with (Datatypes.S n) in * by lia.
    set (t := Datatypes.S n) in *.
    set (a := - (eta' * mu * m n)). set (h := - (eta' * g t * slope S (w t))).
    assert (Y : y t = w t + a) by (unfold y, a, t; replace (Datatypes.S n - 1)%nat with n by lia; ring).
    assert (Y' : y (t + 1)%nat = w t + a + h).
    { unfold y, a, h. replace (t + 1 - 1)%nat with t by lia. rewrite W, M. ring. }
    pose proof (slope_pos S (w t) ltac:(lra)) as P.
    set (c := G * (S / 4) / (1 - mu)) in *.
    assert (Sc : S * (eta' * c) = delta' / (1 - mu)) by (unfold c, delta', delta; field; lra).
    assert (small : S * Rabs a <= mu * delta' / (1 - mu)).
    { unfold a. rewrite Rabs_Ropp, !Rabs_mult, (Rabs_right eta'), (Rabs_right mu) by lra.
      replace (mu * delta' / (1 - mu)) with (mu * (delta' / (1 - mu))) by (field; lra).
      rewrite <- Sc. replace (mu * (S * (eta' * c))) with (S * (eta' * mu * c)) by ring.
      apply Rmult_le_compat_l; [lra |]. apply Rmult_le_compat_l; [nra | easy]. }
    assert (dpos : 0 <= delta' / (1 - mu)).
    { rewrite <- Sc. apply Rmult_le_pos; [lra |]. apply Rmult_le_pos; [lra |].
      apply Rle_trans with (2 := m1). apply Rabs_pos. }
    assert (small' : S * Rabs a <= delta' / (1 - mu)).
    { apply Rle_trans with (1 := small).
      replace (mu * delta' / (1 - mu)) with (mu * (delta' / (1 - mu))) by (field; lra). nra. }
    assert (next : S * Rabs (a + h) <= delta' / (1 - mu)).
    { replace (a + h) with (- (eta' * m t)) by (unfold a, h; rewrite M; ring).
      rewrite Rabs_Ropp, Rabs_mult, (Rabs_right eta'), <- Sc by lra.
      apply Rmult_le_compat_l; [lra |]. apply Rmult_le_compat_l; lra. }
    pose proof (first_order H S u T F (w t) a _ small) as O1.
    pose proof (second_order H S u T F (w t) a h _ small' next) as O2.
    cbv zeta in O1, O2. fold N in O1, O2. rewrite Y in I. rewrite Y'. unfold Phi in *.
    replace (2 * (delta' / (1 - mu))) with (2 * delta' / (1 - mu)) in O2 by (field; lra).
    fold E in O2.
    replace (exp (2 * (mu * delta' / (1 - mu)))) with (E * exp (- (2 * delta'))) in O1.
    2: { unfold E. rewrite <- exp_plus. f_equal. field. lra. }
    (* Phi' (w + a) h, by Phi' (w) h. *)
    set (d1 := (sigma H (w t + a) - u) / slope S (w t + a)) in *.
    set (d0 := (sigma H (w t) - u) / slope S (w t)) in *.
    assert (hb : Rabs h = eta' * Rabs (g t) * slope S (w t)).
    { unfold h. rewrite Rabs_Ropp, !Rabs_mult, (Rabs_right eta'),
        (Rabs_right (slope S (w t))) by lra. ring. }
    assert (ab : Rabs a <= eta' * slope S (w t) * b n).
    { unfold a. rewrite Rabs_Ropp, !Rabs_mult, (Rabs_right eta'), (Rabs_right mu) by lra. easy. }
    assert (NP : 0 < N).
    { unfold N. assert (0 < H * S) by nra. pose proof (pow2_ge_0 (S / H)). nra. }
    assert (EP : 0 < E * exp (- (2 * delta'))) by
      (apply Rmult_lt_0_compat; apply exp_pos).
    set (X := N * (E * exp (- (2 * delta'))) / slope S (w t) ^ 2) in *.
    assert (XP : 0 < X).
    { unfold X. apply Rdiv_lt_0_compat; nra. }
    assert (J1 : d1 * h <= d0 * h + X * (Rabs a * Rabs h)).
    { assert (Q : (d1 - d0) * h <= Rabs (d1 - d0) * Rabs h).
      { rewrite <- Rabs_mult. apply Rle_abs. }
      assert (Rabs (d1 - d0) * Rabs h <= X * Rabs a * Rabs h) by
        (apply Rmult_le_compat_r; [apply Rabs_pos | easy]).
      lra. }
    assert (J2 : X * (Rabs a * Rabs h) <=
      eta' ^ 2 * N * E * (exp (- (2 * delta')) * (Rabs (g t) * b n))).
    { apply Rle_trans with
        (X * (eta' * slope S (w t) * b n * (eta' * Rabs (g t) * slope S (w t)))).
      - apply Rmult_le_compat_l; [lra |]. rewrite hb. apply Rmult_le_compat_r; [| easy].
        rewrite <- hb. apply Rabs_pos.
      - right. unfold X. field. lra. }
    assert (J3 : N * E / slope S (w t) ^ 2 * (h ^ 2 / 2) = eta' ^ 2 * N * E * (g t ^ 2 / 2)).
    { unfold h. field. lra. }
    assert (J4 : d0 * h = - (eta' * (g t * (sigma H (w t) - u)))).
    { unfold d0, h. field. lra. }
    lra.
Qed.

End Momentum.

(** * The corollary *)

Lemma total_swap T d (f : nat -> nat -> R) :
  total T (fun t => total d (f t)) = total d (fun i => total T (fun t => f t i)).
Proof.
  induction T as [| T I].
  - rewrite total_0. symmetry. rewrite (total_ext d _ (fun _ => 0 * 0)).
    + rewrite total_scal. ring.
    + intro. rewrite total_0. ring.
  - rewrite total_S, I, <- total_plus. apply total_ext. intro. now rewrite total_S.
Qed.

Theorem heavy_ball (d T : nat) (H S eta mu G : R) (u : nat -> R) (g w m : nat -> nat -> R) :
  let eta' := eta / (1 - mu) in let delta' := eta' * G * S ^ 2 / 4 in
  0 < S <= H -> 0 < eta -> 0 <= mu < 1 -> mu * exp delta' < 1 ->
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat -> Rabs (g t i) <= G) ->
  (forall i, (1 <= i <= d)%nat -> m 0%nat i = 0) ->
  (forall t i, (1 <= t <= T)%nat -> (1 <= i <= d)%nat ->
    m t i = mu * m (t - 1)%nat i + g t i * slope S (w t i) /\
    w (t + 1)%nat i = w t i - eta * m t i) ->
  (forall i, (1 <= i <= d)%nat -> 0 <= u i <= 1 /\ (S = H -> 0 < u i < 1)) ->
  let v t i := sigma H (w t i) in
  let heading i := sigma H (w (T + 1)%nat i - eta' * mu * m T i) in
  total T (fun t => total d (fun i => g t i * (v t i - u i))) <=
    (divergence d H S u (v 1%nat) - divergence d H S u heading) / eta'
    + eta' * (1 + (S / H) ^ 2) * (H * S / 32) * exp (2 * delta' / (1 - mu))
      * (1 + 2 * mu * exp (- delta') / (1 - mu * exp delta')) * total T (fun t => norm d (g t) ^ 2).
Proof.
  intros eta' delta' TT E M Q B Z W U v heading.
  assert (EP : 0 < eta') by (apply Rdiv_lt_0_compat; lra).
  set (N := (1 + (S / H) ^ 2) * (H * S / 16)).
  assert (NP : 0 < N).
  { unfold N. assert (0 < H * S) by nra. pose proof (pow2_ge_0 (S / H)). nra. }
  set (e := exp (2 * delta' / (1 - mu))).
  set (C := eta' * (1 + (S / H) ^ 2) * (H * S / 32) * e
    * (1 + 2 * mu * exp (- delta') / (1 - mu * exp delta'))).
  rewrite (total_ext T (fun t => norm d (g t) ^ 2) (fun t => total d (fun i => g t i ^ 2))).
  2: { intro. unfold norm. apply pow2_sqrt, total_nonneg. intro. apply pow2_ge_0. }
  rewrite (total_swap T d (fun t i => g t i * (v t i - u i))),
    (total_swap T d (fun t i => g t i ^ 2)).
  unfold divergence. rewrite <- total_minus.
  unfold Rdiv at 1. rewrite (Rmult_comm (total d _)), <- !total_scal, <- total_plus.
  apply total_le. intros i I. cbv beta.
  assert (one : eta' * total T (fun t => g t i * (v t i - u i)) <=
    D H S (u i) (v 1%nat i) - D H S (u i) (heading i) + eta' * (C * total T (fun t => g t i ^ 2))).
  { destruct T as [| T'].
    { rewrite !total_0. unfold heading, v. change (0 + 1)%nat with 1%nat.
      replace (w 1%nat i - eta' * mu * m 0%nat i) with (w 1%nat i) by (rewrite (Z i I); ring). lra. }
    set (T := Datatypes.S T') in *.
    assert (GP : 0 <= G).
    { eapply Rle_trans; [apply Rabs_pos | apply (B 1%nat i); unfold T; lia]. }
    pose proof (entry H S eta' mu G (u i) (fun t => g t i) (fun t => w t i) (fun t => m t i)
      TT (U i I) EP M (Z i I) T GP) as K.
    specialize (K ltac:(intros t Ht; destruct (W t i Ht I) as [W1 W2]; split;
      [now apply B | split; [easy | rewrite W2; unfold eta'; field; lra]])).
    cbv beta zeta in K. change (delta S eta' G) with delta' in K. fold N e in K.
    change (1 - 1)%nat with 0%nat in K. rewrite (Z i I), Rmult_0_r, Rminus_0_r in K.
    replace (T + 1 - 1)%nat with T in K by lia.
    pose proof (sum_of_b S eta' mu G (fun t => g t i)) as SB. cbv zeta in SB.
    specialize (SB M Q T). cbv beta in SB. change (delta S eta' G) with delta' in SB.
    set (sum_b := total T (fun t => Rabs (g t i) * _)) in *.
    set (sum_g := total T (fun t => g t i ^ 2)) in *.
    assert (X : exp (- (2 * delta')) * sum_b <=
      mu * exp (- delta') / (1 - mu * exp delta') * sum_g).
    { apply Rle_trans with
        (exp (- (2 * delta')) * (mu * exp delta' / (1 - mu * exp delta') * sum_g)).
      - apply Rmult_le_compat_l; [left; apply exp_pos | exact SB].
      - right. replace (- delta') with (- (2 * delta') + delta') by ring.
        rewrite exp_plus. field. lra. }
    assert (L : eta' ^ 2 * N * e * (sum_g / 2 + exp (- (2 * delta')) * sum_b) <=
      eta' ^ 2 * N * e * (sum_g / 2 + mu * exp (- delta') / (1 - mu * exp delta') * sum_g)).
    { apply Rmult_le_compat_l; [| lra]. apply Rmult_le_pos; [| left; apply exp_pos].
      apply Rmult_le_pos; [apply pow2_ge_0 | lra]. }
    assert (R : eta' ^ 2 * N * e * (sum_g / 2 + mu * exp (- delta') / (1 - mu * exp delta') * sum_g) =
      eta' * (C * sum_g)) by (unfold C, N; field; lra).
    unfold v, heading. lra. }
  apply Rmult_le_reg_l with eta'; [easy |].
  apply Rle_trans with (1 := one). right. field. lra.
Qed.

Print Assumptions heavy_ball.
