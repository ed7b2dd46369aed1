r"""Spectral networks as pure functions: their parameters and their forward passes ([S] sections 3 and 4).

Parameters are a pytree named as in [S]:

    {"eigenvectors": {"phi1": (N_2, N_1), ..., "phiB": (N_{B+1}, N_B)},
     "eigenvalues": {"L1": (N_1,), "L2": (N_2,), ...}}

A missing "L1" is 0 and not trained, as in [S] section 4: a constant, which saves a product. In the gated form
`A'_B = Lambda_B Phi_B^-1`, phi_1, ..., phi_B are not eigenvectors but factors. That name tells functions
which form the parameters have:

    {"factors": {"phi1": ...}, "eigenvalues": {"L2": ...}}

The state of a network is `{}`, or tells which hidden neurons are left, `{"neurons": {"L2": (N_2,), ...}}`,
booleans. A removed neuron has activation 0: it is gone from the rows and columns of all W_ij. In the gated
form, an eigenvalue of 0 has the same effect, if f(0) = 0. In the form of [S], no choice of eigenvectors and
eigenvalues has. If its eigenvalue is 0, `W_{k,k-1} = phi_{k-1} L_{k-1} - L_k phi_{k-1}` still feeds the
neuron where L_{k-1} is not 0. Without its row of phi_{k-1}, or its column of phi_k, all skip connections lose
their share through it, `-W_{k+1,k} phi_{k-1}`. At the perceptron start, this share is all that the network
computes.

[S] Peri, Chicchi, Fanelli and Giambagli, Spectral Architecture Search for Neural Network Models (SPARCS).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_array,
    check_callable,
    check_choice,
    check_flag,
    check_list,
    check_mapping,
    check_one_key,
    check_widths,
    one_line,
    shortened,
    shown,
)
from jaxarch._internal.trees import PyTree, named_leaves, path_name, select
from jaxarch.spectral.algebra import (
    Blocks,
    Form,
    adjacent,
    apply_adjacency,
    check_blocks,
    check_form,
    connections,
    inner_eigenvalues,
)

Activation = Callable[[Array], Array]
"""An elementwise function between layers."""
Initializer = Callable[[Array, tuple[int, ...]], Array]
Start = ArrayLike | Initializer
"""Start of a layer's eigenvalues: a number, an array of their shape, or `(key, shape) -> values`."""
Neurons = Sequence[Array | None]
"""Neurons left in each hidden layer: booleans of shape (N_i,), or `None` for all."""
Method = Literal["auto", "substitution", "materialised"]
"""Order of a forward pass: layer by layer, or with all W_ij built; `auto` takes the cheaper one."""

xavier_uniform: Initializer = jax.nn.initializers.glorot_uniform()
"""Initializer of the eigenvectors in [S] appendix E."""

FACTORS: dict[Form, str] = {"eigendecomposition": "eigenvectors", "gated": "factors"}
"""Name of phi_1, ..., phi_B among the parameters, for each form."""

_NEURONS = re.compile(r"eigenvalues/(L\d+)$")

PASS = 4
"""Cost of an elementwise operation on one number, in multiply-adds of a matrix product (approximate)."""


# Parameters ------------------------------------------------------------------------------------------


def init(
    key: Array,
    widths: Sequence[int],
    eigenvalues: Sequence[Start],
    eigenvectors: Initializer = xavier_uniform,
    train_input_eigenvalues: bool = False,
    form: Form = "eigendecomposition",
) -> PyTree:
    """Draw initial parameters.

    Args:
      key: a `jax.random.key`.
      widths: neurons per layer, N_1, ..., N_{B+1}.
      eigenvalues: one start per layer.
      eigenvectors: an initializer of matrices of shape (inputs, outputs), like JAX's.
      train_input_eigenvalues: whether L_1 is a parameter. If not it is 0, whatever its start.
      form: `eigendecomposition` or `gated`.

    Raises:
      ArgumentError: widths that are not at least two positive integers, starts of another number or shape, an
        initializer that is not a function, an unknown form.

    Example:
      >>> import jax, jaxarch
      >>> params = jaxarch.spectral.init(jax.random.key(0), (4, 3, 2), eigenvalues=(0.0, 0.0, 1.0))
      >>> {path: leaf.shape for path, leaf in jaxarch.named_leaves(params["eigenvectors"]).items()}
      {'phi1': (3, 4), 'phi2': (2, 3)}
      >>> {path: leaf.tolist() for path, leaf in params["eigenvalues"].items()}
      {'L2': [0.0, 0.0, 0.0], 'L3': [1.0, 1.0]}
    """
    check_one_key(key)
    check_widths(widths)
    check_form(form)
    check_callable("eigenvectors", eigenvectors, "key", "shape")
    check_flag("train_input_eigenvalues", train_input_eigenvalues)
    check_starts(eigenvalues, widths)
    depth = len(widths) - 1
    phi_keys, value_keys = (jax.random.split(k, depth + 1) for k in jax.random.split(key))

    def start(i: int) -> Array:
        given, shape = eigenvalues[i], (widths[i],)
        return given(value_keys[i], shape) if callable(given) else jnp.full(shape, jnp.asarray(given), float)

    return {
        FACTORS[form]: {
            f"phi{i + 1}": eigenvectors(phi_keys[i], (widths[i], widths[i + 1])).T for i in range(depth)
        },
        "eigenvalues": {f"L{i + 1}": start(i) for i in range(not train_input_eigenvalues, depth + 1)},
    }


def check_starts(eigenvalues: Any, widths: Sequence[int]) -> None:
    """Raise unless there is one start per layer: a number, an array of its width, or a function."""
    check_list("eigenvalues", eigenvalues, f"{len(widths)} starts, one per layer")
    if len(eigenvalues) != len(widths):
        raise ArgumentError(
            f"eigenvalues: expected {len(widths)} starts, one per layer, got {len(eigenvalues)}"
        )
    for i, (start, size) in enumerate(zip(eigenvalues, widths, strict=True), 1):
        if callable(start):
            check_callable(f"eigenvalues: L_{i}", start, "key", "shape")
            continue
        values = start if isinstance(start, Array) else _as_array(start)
        is_real = any(jnp.issubdtype(values.dtype, kind) for kind in (np.integer, np.floating, np.bool_))
        if not is_real or values.shape not in ((), (size,)):
            raise ArgumentError(
                f"eigenvalues: expected a number, an array of shape ({size},) or an initializer for L_{i}, "
                f"got {shown(start)}"
            )


def _as_array(value: Any) -> np.ndarray:
    """Convert to a NumPy array; ragged lists become one object."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(None)


def form_of(params: PyTree) -> Form:
    """Return the form of a network, by the names of its parameters.

    Raises:
      ArgumentError: parameters of another kind of model.

    Example:
      >>> import jax, jaxarch
      >>> params, _ = jaxarch.spectral_network((4, 3, 2), form="gated").init(jax.random.key(0))
      >>> jaxarch.spectral.form_of(params)
      'gated'
    """
    try:
        forms = [form for form, name in FACTORS.items() if name in params]
    except TypeError:
        forms = []
    if len(forms) != 1:
        raise _not_spectral()
    return forms[0]


def unpack(params: PyTree, form: Form = "eigendecomposition") -> tuple[list[Array], list[Array | np.ndarray]]:
    """Return the sequences phi_1, ..., phi_B and L_1, ..., L_{B+1} of a network's parameters.

    The sequences do not tell the form any more, so pass it on:
    `feedforward(*unpack(params, form), x, form=form)`. Use `form_of(params)` if you do not know it.

    Raises:
      ArgumentError: parameters of another kind of model, of another form, or of many networks at once; blocks
        that do not fit.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {
      ...     "eigenvectors": {"phi1": jnp.array([[2.0]]), "phi2": jnp.array([[3.0]])},
      ...     "eigenvalues": {"L2": jnp.array([5.0]), "L3": jnp.array([7.0])},
      ... }
      >>> phi, values = jaxarch.spectral.unpack(params)
      >>> [vector.tolist() for vector in values]  # L_1 is not there, and so 0
      [[0.0], [5.0], [7.0]]
    """
    check_form(form)
    if form_of(params) != form:
        raise ArgumentError(
            f"params: expected parameters of the form {form!r}, got the form {form_of(params)!r}"
        )
    try:
        vectors, values = (named_leaves(params[kind]) for kind in (FACTORS[form], "eigenvalues"))
        phi = [vectors[f"phi{i + 1}"] for i in range(len(vectors))]
        if "L1" not in values:
            # A NumPy array is known during tracing, so `feedforward` can see that it is 0.
            values["L1"] = np.zeros(phi[0].shape[-1], phi[0].dtype)
        eigenvalues = [values[f"L{i + 1}"] for i in range(len(values))]
    except (KeyError, TypeError, IndexError, AttributeError):
        raise _not_spectral() from None
    check_blocks(phi, eigenvalues)
    return phi, eigenvalues


def _not_spectral() -> ArgumentError:
    return ArgumentError(
        "params: expected parameters of a spectral network, "
        '{"eigenvectors": {"phi1": ...}, "eigenvalues": {"L2": ...}}, with "factors" instead of '
        '"eigenvectors" in the gated form'
    )


def hidden_eigenvalues(params: PyTree) -> PyTree:
    """Return the eigenvalues of hidden neurons, L_2 to L_B, with `None` in place of all other leaves.

    Args:
      params: parameters of a spectral network, or of any model that contains one.

    Raises:
      ArgumentError: parameters without hidden eigenvalues.

    Example:
      >>> import jax, jaxarch
      >>> params = jaxarch.spectral.init(jax.random.key(0), (4, 3, 2), eigenvalues=(0.0, 0.5, 1.0))
      >>> hidden = jaxarch.spectral.hidden_eigenvalues(params)
      >>> {path: leaf.tolist() for path, leaf in jaxarch.named_leaves(hidden).items()}
      {'eigenvalues/L2': [0.5, 0.5, 0.5]}
    """
    names = named_leaves(params)

    def is_hidden(path: str, leaf: Any) -> bool:
        name = re.fullmatch(r"(.*)eigenvalues/L(\d+)", path)
        if name is None:
            return False
        # A hidden layer has an incoming phi and an outgoing one.
        layer = int(name[2])
        return any(
            all(f"{name[1]}{factors}/phi{i}" in names for i in (layer - 1, layer))
            for factors in FACTORS.values()
        )

    if not any(is_hidden(path, leaf) for path, leaf in names.items()):
        raise ArgumentError(
            "params: they have no hidden eigenvalues; expected a network such as jaxarch.spectral_network "
            f"with three layers or more; the leaves are: {shortened(', '.join(names), 160)}"
        )
    return select(params, is_hidden)


def with_neurons(state: PyTree, mask: PyTree) -> PyTree:
    """Return the state of a model reduced to the hidden neurons of a mask.

    Args:
      state: the model's state: `{}`, or one with a place for neurons beside the eigenvalues, as in
        `jaxarch.models.SpectralMLP`: the path `head/neurons/L2` for `head/eigenvalues/L2`.
      mask: booleans in the structure of `hidden_eigenvalues(params)`.

    Raises:
      ArgumentError: a state without a place for the neurons.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params, state = jaxarch.spectral_network((4, 2, 2)).init(jax.random.key(0))
      >>> mask = {"eigenvalues": {"L2": jnp.array([True, False])}}
      >>> jaxarch.spectral.with_neurons(state, mask)
      {'neurons': {'L2': Array([ True, False], dtype=bool)}}
    """
    neurons = {_NEURONS.sub(r"neurons/\1", path): kept for path, kept in named_leaves(mask).items()}
    places = named_leaves(state)
    if isinstance(state, dict) and not neurons.keys() & places.keys():
        names = [path.split("/") for path in neurons]
        if all(len(name) == 2 for name in names):
            return {**state, "neurons": {name[1]: neurons["/".join(name)] for name in names}}
    if absent := neurons.keys() - places.keys():
        raise ArgumentError(
            f"state: the model's state has no entry {sorted(absent)[0]!r} for removed neurons; use a model "
            "with one, such as jaxarch.models.SpectralMLP"
        )
    return jax.tree_util.tree_map_with_path(lambda path, leaf: neurons.get(path_name(path), leaf), state)


def neurons_in(state: PyTree, mask: PyTree) -> PyTree:
    """Return the hidden neurons of a mask that a model's state has not removed, in the mask's structure."""
    places = named_leaves(state)

    def left(path: Any, kept: Array) -> Array:
        return kept & places.get(_NEURONS.sub(r"neurons/\1", path_name(path)), True)

    return jax.tree_util.tree_map_with_path(left, mask)


def tells_neurons(state: PyTree) -> bool:
    """Return whether the state of a model tells which hidden neurons are left."""
    return any("neurons" in path.split("/") for path in named_leaves(state))


def unpack_neurons(state: PyTree, layers: int) -> Neurons:
    """Return the masks of hidden layers 2, ..., B of B + 1 `layers`; `None` where all neurons are left."""
    check_mapping("state", state, '{} or {"neurons": {"L2": ...}}')
    kept = named_leaves(state.get("neurons", {}))
    hidden = [f"L{i}" for i in range(2, layers)]
    if unknown := kept.keys() - set(hidden):
        raise ArgumentError(
            f"state: it masks neurons of {sorted(unknown)[0]!r}, but the hidden layers are "
            f"{', '.join(hidden) or 'none'}"
        )
    return [kept.get(f"L{i}") for i in range(2, layers)]


# What the network computes ---------------------------------------------------------------------------


def feedforward(
    eigenvectors: Sequence[Array],
    eigenvalues: Sequence[Array | np.ndarray],
    x: Array,
    activation: Activation = jax.nn.relu,
    method: Method = "auto",
    neurons: Neurons | None = None,
    form: Form = "eigendecomposition",
) -> Array:
    r"""Apply the update rule `a_i = f(sum_{k<i} W_ik a_k)`, without f in the last layer ([S] 4.5, 3.4).

    Substitution builds no W_ik except those between neighbors: with `s_1 = x`,

        z_i = W_{i,i-1} s_{i-1},    a_i = f(z_i),    s_i = a_i - phi_{i-1} s_{i-1},

    and the output is z_{B+1}. This holds since s is `Phi_B^-1 a`. Row i of A_B left of its diagonal is
    W_{i,i-1} times row i - 1 of Phi_B^-1 ([S] 4.2, 4.3). All B (B + 1) / 2 bundles together thus cost two
    products per hidden layer and one for the output. If L_{i-1} is known to be 0,
    `z_i = -L_i phi_{i-1} s_{i-1}` and the layer costs one product. For a narrow output it is cheaper to skip
    s_B:

        z_{B+1} = W_{B+1,B} a_B - (W_{B+1,B} phi_{B-1}) s_{B-1}.

    In the gated form every layer behaves as if L_{i-1} = 0: with `u_i = phi_{i-1} s_{i-1}`,

        z_i = -L_i u_i,    s_i = f(-L_i u_i) - u_i,

    one product per layer, as in an ordinary network with the weights phi_i. It is such a network: each neuron
    has its own activation `u -> f(-lambda u) - u`, linear where lambda = 0. With ReLU it is a parametric ReLU
    (He et al. 2015).

    No custom derivatives are defined: JAX's derivative takes the same products again, in either mode, and
    stores only s and what f needs.

    Args:
      eigenvectors: phi_1, ..., phi_B, shapes (N_{i+1}, N_i).
      eigenvalues: L_1, ..., L_{B+1}, shapes (N_i,). Zeros in a NumPy array are known to be 0 during tracing.
      x: shape (..., N_1).
      activation: f, elementwise.
      method: `substitution` computes every s_i. `auto` skips s_B if that takes fewer operations, counted from
        the shapes during tracing; with one hidden layer, skipping s_B means building all the W_ik.
        `materialised` builds them at any depth, as in [S]: O(B^2) bundles, and never faster than `auto`.
      neurons: which hidden neurons are left, one mask per hidden layer; the others have activation 0.
      form: `eigendecomposition` or `gated`.

    Returns:
      Outputs of shape (..., N_{B+1}).

    Raises:
      ArgumentError: blocks that do not fit one another or the input, an unknown method or form.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> eigenvectors = [jnp.array([[2.0]]), jnp.array([[3.0]])]  # W_21 = -10, W_32 = -6, W_31 = 12
      >>> eigenvalues = [jnp.array([0.0]), jnp.array([5.0]), jnp.array([7.0])]
      >>> x = jnp.array([[1.0], [-1.0]])
      >>> print(jaxarch.spectral.feedforward(eigenvectors, eigenvalues, x))  # 12, and -12 - 6 * 10
      [[ 12.]
       [-72.]]
      >>> print(jaxarch.spectral.feedforward(eigenvectors, eigenvalues, x, form="gated"))  # 42, -42 - 21 * 10
      [[  42.]
       [-252.]]
    """
    _check(eigenvectors, eigenvalues, x, activation, form)
    check_method(method)
    f = _activations(activation, neurons, len(eigenvectors) - 1)
    if method == "materialised":
        return _materialised(connections(eigenvectors, eigenvalues, form), x, f)
    inner = inner_eigenvalues(eigenvalues, form)
    short = method == "auto" and _is_shorter(eigenvectors, inner, math.prod(x.shape[:-1]))
    return _substitution(zip(eigenvectors, inner, eigenvalues[1:], strict=True), x, f, short)


def recursive(
    eigenvectors: Sequence[Array],
    eigenvalues: Sequence[Array | np.ndarray],
    x: Array,
    activation: Activation = jax.nn.relu,
    neurons: Neurons | None = None,
    form: Form = "eigendecomposition",
) -> Array:
    r"""Apply the recursive rule `A_B f(A_B ... f(A_B a))`, A_B B times, `a = (x, 0, ..., 0)` ([S] section 4).

    Unlike in `feedforward`, the self-loops L_i on the diagonal of A_B count, and the input is seen once: it
    stays in its layer only as far as L_1 keeps it there. The rule is computed by substitution, with 2 B
    products per iteration, B in the gated form.

    Args:
      eigenvectors: phi_1, ..., phi_B, shapes (N_{i+1}, N_i).
      eigenvalues: L_1, ..., L_{B+1}, shapes (N_i,).
      x: shape (..., N_1).
      activation: f, elementwise.
      neurons: which hidden neurons are left, one mask per hidden layer; the others have activation 0.
      form: `eigendecomposition` or `gated`.

    Returns:
      The last layer's block, shape (..., N_{B+1}).

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> eigenvectors = [jnp.array([[2.0]]), jnp.array([[3.0]])]  # W_21 = -10, W_32 = -6, W_31 = 12
      >>> eigenvalues = [jnp.array([0.0]), jnp.array([5.0]), jnp.array([7.0])]
      >>> x = jnp.array([[1.0], [-1.0]])  # the first turn makes 1 (0, -10, 12), and -1 (0, 10, -12)
      >>> print(jaxarch.spectral.recursive(eigenvectors, eigenvalues, x))  # 7 * 12, and -6 * 10
      [[ 84.]
       [-60.]]
    """
    _check(eigenvectors, eigenvalues, x, activation, form)
    columns = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).T
    a = [columns] + [jnp.zeros((phi.shape[0], columns.shape[1]), x.dtype) for phi in eigenvectors]
    a = apply_adjacency(eigenvectors, eigenvalues, a, form)
    # The recursive rule applies f to every layer's block, also to those of inputs and outputs.
    f = [activation, *_activations(activation, neurons, len(eigenvectors) - 1, axis=0), activation]
    for _ in range(len(eigenvectors) - 1):
        a = [of_layer(block) for of_layer, block in zip(f, a, strict=True)]
        a = apply_adjacency(eigenvectors, eigenvalues, a, form)
    return a[-1].T.reshape(*x.shape[:-1], a[-1].shape[0])


def layer_by_layer(
    eigenvectors: Sequence[Array],
    eigenvalues: Sequence[Array | np.ndarray],
    x: Array,
    activation: Activation = jax.nn.relu,
    neurons: Neurons | None = None,
    form: Form = "eigendecomposition",
) -> Array:
    r"""Join only neighboring layers, `a_i = f(W_{i,i-1} a_{i-1})`, without f in the last layer.

    The bundles are those of [S] eq. (4.3), without all others. These are the spectral layers from before
    SPARCS, except that neighbors share the eigenvalues of the layer between them. In the gated form the
    bundles are `W_{i,i-1} = -L_i phi_{i-1}`, and share none.

    Args:
      eigenvectors: phi_1, ..., phi_B, shapes (N_{i+1}, N_i).
      eigenvalues: L_1, ..., L_{B+1}, shapes (N_i,).
      x: shape (..., N_1).
      activation: f, elementwise.
      neurons: which hidden neurons are left, one mask per hidden layer; the others have activation 0.
      form: `eigendecomposition` or `gated`.

    Returns:
      Outputs of shape (..., N_{B+1}).

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> eigenvectors = [jnp.array([[2.0]]), jnp.array([[3.0]])]  # W_21 = -10, W_32 = -6
      >>> eigenvalues = [jnp.array([0.0]), jnp.array([5.0]), jnp.array([7.0])]
      >>> print(jaxarch.spectral.layer_by_layer(eigenvectors, eigenvalues, jnp.array([-1.0])))
      [-60.]
    """
    _check(eigenvectors, eigenvalues, x, activation, form)
    inner = inner_eigenvalues(eigenvalues, form)
    *hidden, last = zip(eigenvectors, inner, eigenvalues[1:], strict=True)
    for f, blocks in zip(_activations(activation, neurons, len(hidden)), hidden, strict=True):
        x = f(x @ adjacent(*blocks).T)
    return x @ adjacent(*last).T


def _substitution(
    layers: Iterable[tuple[Array, Array | np.ndarray, Array | np.ndarray]],
    x: Array,
    f: Sequence[Activation],
    short: bool,
) -> Array:
    """Compute the outputs by substitution; if `short`, without s_B."""
    *hidden, last = layers
    output = adjacent(*last)
    s = x
    for i, (phi, inner, outer) in enumerate(hidden, 1):
        if short and i == len(hidden):
            z = s @ adjacent(phi, inner, outer).T
            # Negate the narrow matrix and not the product, whose cotangent would be negated at full size.
            return f[i - 1](z) @ output.T + s @ (-output @ phi).T
        u = s @ phi.T
        z = u * jnp.broadcast_to(-outer, u.shape) if _is_zero(inner) else s @ adjacent(phi, inner, outer).T
        # This is forward substitution: s holds `Phi_B^-1 a`, block by block.
        s = f[i - 1](z) - u
    return s @ output.T


def _materialised(bundles: Blocks, x: Array, f: Sequence[Activation]) -> Array:
    a, z = [x], x
    for i in range(2, len(f) + 3):
        if i > 2:
            a.append(f[i - 3](z))
        z = sum(a[j - 1] @ bundles[i, j].T for j in range(i - 1, 0, -1))
    return z


def _activations(
    activation: Activation, neurons: Neurons | None, hidden: int, axis: int = -1
) -> list[Activation]:
    """Return the activation of each hidden layer, 0 for removed neurons; `axis` is the axis of neurons."""
    if neurons is None:
        return [activation] * hidden
    check_list("neurons", neurons, f"{hidden} masks, one per hidden layer")
    if len(neurons) != hidden:
        raise ArgumentError(f"neurons: expected {hidden} masks, one per hidden layer, got {len(neurons)}")

    def of_layer(kept: Array | None) -> Activation:
        if kept is None:
            return activation
        check_array("neurons", kept)

        def masked(z: Array) -> Array:
            if jnp.shape(kept) != (z.shape[axis],):
                raise ArgumentError(
                    f"neurons: expected a mask of shape ({z.shape[axis]},), got {jnp.shape(kept)}"
                )
            shaped = jnp.expand_dims(kept, [i for i in range(z.ndim) if i != axis % z.ndim])
            # Mask inside as well: if the activation of a removed neuron overflows, 0 times its slope is NaN.
            return jnp.where(shaped, activation(jnp.where(shaped, z, 0)), 0)

        return masked

    return [of_layer(kept) for kept in neurons]


def check_activation(activation: Activation) -> None:
    """Raise unless an activation is elementwise: a change of one input changes only that output.

    Raises:
      ArgumentError: not a function, another shape, outputs that depend on other inputs (softmax, a sort).
    """
    if not callable(activation):
        raise ArgumentError(
            f"activation: expected an elementwise function such as jax.nn.relu, got {shown(activation)}"
        )
    like = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    try:
        made = jax.eval_shape(activation, like)
        shape, dtype = made.shape, made.dtype
    except Exception as error:
        raise ArgumentError(f"activation: it cannot be applied to an array: {one_line(error)}") from error
    if shape != like.shape:
        raise ArgumentError(
            f"activation: expected an elementwise function; it turns shape {like.shape} into {shape}"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ArgumentError(f"activation: expected it to return floating-point values, got {dtype}")
    # One input at a time, since vmap would compile. The values are concrete also inside jit.
    with jax.ensure_compile_time_eval():
        before = jnp.asarray([[-1.5, 0.25, 2.0], [3.0, -0.5, 1.0]])
        outputs = activation(before)
        for place in np.ndindex(before.shape):
            changed = activation(before.at[place].set(-4.0 if place[0] else 4.0)) != outputs
            try:
                others = np.asarray(changed).copy()
            except jax.errors.TracerArrayConversionError:
                # Inside a trace, JAX before 0.8 traces jitted activations even here: there is nothing to
                # compare.
                return
            others[place] = False
            if others.any():
                raise ArgumentError(
                    "activation: expected an elementwise function; one input changes several outputs"
                )


def check_method(method: str) -> None:
    """Raise unless a method is known."""
    check_choice("method", method, get_args(Method))


def _check(
    eigenvectors: Sequence[Array],
    eigenvalues: Sequence[Array | np.ndarray],
    x: Array,
    activation: Activation,
    form: Form,
) -> None:
    """Raise unless the blocks fit one another and the input, and activation and form can be used."""
    check_blocks(eigenvectors, eigenvalues)
    check_form(form)
    check_callable("activation", activation, "z")
    check_array("x", x)
    size = eigenvectors[0].shape[1]
    if jnp.ndim(x) == 0 or x.shape[-1] != size:
        raise ArgumentError(f"x: the network has {size} inputs, got an array of shape {jnp.shape(x)}")


def _is_zero(values: Array | np.ndarray) -> bool:
    """Return whether eigenvalues are known to be 0 during tracing."""
    return isinstance(values, np.ndarray) and not values.any()


def _is_shorter(eigenvectors: Sequence[Array], inner: Sequence[Array | np.ndarray], examples: int) -> bool:
    """Return whether an output without s_B takes fewer operations, multiply-adds of a forward pass.

    It saves a product and a subtraction. If L_{B-1} = 0, s_B itself takes one product, and only elementwise
    work is saved. It adds products with the output's width. A backward pass has twice the products of a
    forward pass, so it does not change the order.
    """
    if len(eigenvectors) == 1:
        return False
    outputs, width = eigenvectors[-1].shape
    inputs = eigenvectors[-2].shape[1]
    saved = 2 * PASS if _is_zero(inner[-2]) else inputs + PASS
    return outputs * inputs * (examples + width) < examples * width * saved
