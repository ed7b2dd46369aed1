"""Errors and warnings for users: one line with the argument's name and the expected value.

JAX and NumPy are imported only where needed, so that `jaxarch --help` does not wait for them.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import numbers
import os
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

LARGEST_COUNT = 2**31 - 1
LONGEST_LIST = 250
"""Maximum number of characters of the names that a message lists."""


class ArgumentError(ValueError):
    """An argument from the user that cannot be used.

    The message is one line: the argument's name, its value, and the expected value. The command line prints
    it and ends with exit status 2. Any other exception is a bug of the library.
    """


class NonFiniteWarning(UserWarning):
    """A run met NaN or Inf in its loss; the message names strategy, run and step."""


class DeadStartWarning(UserWarning):
    """A trainable leaf receives a gradient of exactly zero at the start of training."""


class ResultWarning(UserWarning):
    """A result, mask or selection lacks something that was asked for; the message names it and its place."""


for _public in (ArgumentError, NonFiniteWarning, DeadStartWarning, ResultWarning):
    # Tracebacks show the name that users import.
    _public.__module__ = "jaxarch"


def shown(value: object, limit: int = 80) -> str:
    """Return a value as error messages show it: on one line, and shortened in the middle if it is long.

    Args:
      value: any value. A path is shown as it is typed, everything else as its `repr`.
      limit: maximum number of characters.

    Returns:
      At most `limit` characters, all of them printable: line ends and control characters are escaped.
    """
    # The value may be of any size, so never build more text than is shown.
    if isinstance(value, os.PathLike):
        path = os.fsdecode(value)
        return shortened(printable(path[:limit] + path[-limit:] if len(path) > 2 * limit else path), limit)
    try:
        # Show a number of NumPy or JAX like a Python number.
        number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        text = _Short(limit).repr(number)
    except Exception:
        text = f"<{type(value).__name__}>"
    return shortened(printable(text if isinstance(value, str) else " ".join(text.split())), limit)


def printable(text: str) -> str:
    """Return a text with its line ends and control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, from its beginning and its end."""
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return f"{text[: limit - 3 - tail]}...{text[len(text) - tail :]}"


class _Short(reprlib.Repr):
    """`repr` that stops at some length, in containers at any depth."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 2 * limit + 3
        for container in ("tuple", "list", "array", "dict", "set", "frozenset", "deque"):
            setattr(self, f"max{container}", limit)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the tail of an error about an unknown name: the nearest known name, or all of them.

    A name that ends a known one, such as `fig4` for `disentangling.fig4`, is nearest to that one.
    """
    known = list(known)
    if isinstance(name, str):
        near = [full for full in known if full.endswith(f".{name}")]
        # The time of a comparison grows with the square of the length.
        near = near or difflib.get_close_matches(name[:200], known, n=1, cutoff=0.5)
        if near:
            return f"did you mean {' or '.join(map(repr, near))}?"
    text = ", ".join(known)
    if len(text) > LONGEST_LIST:
        text = f"{text[:LONGEST_LIST].rpartition(', ')[0]}, ... ({len(known)} in all)"
    return f"known: {text}"


def one_line(error: BaseException) -> str:
    """Return the message of another library's error, for the tail of an error of this one."""
    return shortened(" ".join(str(error).split()) or type(error).__name__, 200)


def first_line(error: BaseException, width: int = 160) -> str:
    """Return the beginning of another library's error message, where the rest does not help."""
    return shortened(one_line(error), width)


@contextlib.contextmanager
def from_extra(extra: str, what: str) -> Iterator[None]:
    """Import packages of an extra; if one is missing, raise an error that names the extra.

    Args:
      extra: the extra, such as `lab` in `pip install 'jaxarch[lab]'`.
      what: the feature that needs it, after the name of its argument or function: `to_frame: a table`.

    Raises:
      ArgumentError: a package that is not installed.

    Example:
      >>> from jaxarch._internal.errors import from_extra
      >>> with from_extra("lab", "to_frame: a table"):
      ...     import pandas
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "jaxarch":
            raise
        raise ArgumentError(
            f"{what} needs {package}, which is not installed; pip install 'jaxarch[{extra}]'"
        ) from None


def is_traced(value: object) -> bool:
    """Return whether a value is only known inside a JAX transformation, and so cannot be checked."""
    if "jax" not in sys.modules:
        return False
    import jax

    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def check_function(name: str, function: Any, *arguments: Any) -> None:
    """Raise if a module is given in place of a function of its parameters: it would take these as its input.

    A method that takes its parameters, such as Linen's `apply`, counts as a function.

    Args:
      name: the argument's name.
      function: the argument's value.
      *arguments: the arguments of the later call, the parameters first.

    Raises:
      ArgumentError: a module (the message has the right call), or a value that cannot be called.
    """
    inner = function
    while isinstance(inner, functools.partial) or hasattr(inner, "__wrapped__"):
        inner = inner.func if isinstance(inner, functools.partial) else inner.__wrapped__
    if not callable(inner):
        raise ArgumentError(f"{name}: expected a function, got {shown(function)}")
    is_method = inspect.ismethod(inner) and inner.__name__ != "__call__"
    owner, right = getattr(inner, "__self__", inner) if inspect.ismethod(inner) else inner, ""
    if _is_instance(owner, "flax.nnx", "Module"):
        if not is_method or not _takes_parameters(inner, arguments):
            right = "both results of jaxarch.nnx.as_function(model), or call jaxarch.nnx.shrink(model, x)"
    elif _is_instance(owner, "equinox", "Module"):
        if _has_arrays(owner) and not _takes_parameters(inner, arguments):
            right = (
                "lambda p, x: equinox.combine(p, static)(x) and p, where p, static = "
                "equinox.partition(model, equinox.is_array)"
            )
    elif _is_instance(owner, "flax.linen", "Module") and not is_method:
        right = "model.apply and its variables"
    elif _is_instance(owner, "keras", "Layer") and not is_method:
        right = "lambda p, x: model.stateless_call(p, state, x)[0] and its trainable variables"
    if right:
        raise ArgumentError(
            f"{name}: expected a function whose first argument is the parameters, got the module "
            f"{type(owner).__name__}, which would take them as its input; pass {right}"
        )


def _is_instance(value: object, library: str, name: str) -> bool:
    """Return whether a value is of a class of a library that may be missing; nothing is imported."""
    cls = getattr(sys.modules.get(library), name, None)
    return cls is not None and isinstance(value, cls)


def _has_arrays(module: object) -> bool:
    import jax

    return any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(module))


def _takes_parameters(function: Any, arguments: Sequence[Any]) -> bool:
    """Return whether a module's method requires all arguments, the first of which is not a single array."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    positional = [
        each for each in parameters if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    required = [each for each in positional if each.default is kinds.empty]
    many = any(each.kind is kinds.VAR_POSITIONAL for each in parameters)
    return not hasattr(arguments[0], "shape") and (many or len(required) == len(arguments))


def check_finite(name: str, value: object) -> None:
    """Raise unless every entry of a number or array is real and finite, as JAX keeps it. Traced values pass.

    JAX keeps float32 unless float64 is enabled: 1e39 is infinite in it.

    Raises:
      ArgumentError: any other value; the message names the argument.
    """
    if is_traced(value):
        return
    import numpy as np

    if not np.isfinite(_numbers(name, value, "a finite number")).all():
        raise ArgumentError(f"{name}: expected a finite number, got {shown(value)}")


def check_positive(name: str, value: object) -> None:
    """Raise unless every entry of a number or array is positive and finite, as JAX keeps it.

    JAX keeps float32 unless float64 is enabled: 1e39 is infinite in it, and 1e-50 is 0. Traced values pass.

    Raises:
      ArgumentError: any other value; the message names the argument.
    """
    if is_traced(value):
        return
    import numpy as np

    array = _numbers(name, value, "a positive number")
    if not (np.isfinite(array) & (array > 0)).all():
        raise ArgumentError(f"{name}: expected a positive finite number, got {shown(value)}")


def check_strength(name: str, value: object) -> None:
    """Raise unless a number, or every entry of an array, is finite and at least 0. Traced values pass."""
    if is_traced(value):
        return
    import numpy as np

    array = _numbers(name, value, "a finite number of at least 0")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ArgumentError(f"{name}: expected a finite number of at least 0, got {shown(value)}")


def check_concrete(name: str, value: object) -> None:
    """Raise if any of a pytree's leaves is traced."""
    if is_traced(value):
        raise ArgumentError(f"{name}: expected concrete numbers, got traced ones; call it outside of jit")


def real_numbers(name: str, value: object) -> Any:
    """Return real numbers as a NumPy array of float64, for computations outside of JAX.

    Raises:
      ArgumentError: traced or ragged values, texts, complex numbers, objects, `None`; the message names the
        argument.
    """
    check_concrete(name, value)
    import numpy as np

    try:
        array = np.asarray(value)
        # Objects may hold numbers: integers of more than 64 bits, or pandas columns with None for NaN.
        if not (is_numeric(array) and array.dtype.kind != "c") and not (array.dtype == object and array.ndim):
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name}: expected real numbers, got {shown(value)}") from None


def real_number(name: str, value: object) -> float:
    """Return one finite real number as a Python float, for computations outside of JAX.

    Raises:
      ArgumentError: see `real_numbers`; an array, or a number that is not finite.
    """
    import numpy as np

    array = real_numbers(name, value)
    if array.shape != () or not np.isfinite(array):
        raise ArgumentError(f"{name}: expected one finite number, got {shown(value)}")
    return float(array)


def positive_number(name: str, value: object) -> float:
    """Return one positive finite number as a Python float.

    Raises:
      ArgumentError: see `real_number`; a number that is not positive.
    """
    check_positive(name, value)
    return real_number(name, value)


def as_array(name: str, value: Any, dtype: Any = None) -> jax.Array:
    """Convert a value to a JAX array, traced or not.

    Raises:
      ArgumentError: texts, ragged lists, objects, random keys, `None`; the message names the argument.
    """
    import jax

    try:
        array = jax.numpy.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name}: expected an array of numbers, got {shown(value)}") from None
    check_array(name, array)
    return array


def check_broadcast(**values: Any) -> None:
    """Raise unless the shapes of all these arguments broadcast, under JAX's rank promotion setting."""
    import jax
    import numpy as np

    shapes = {name: np.shape(value) for name, value in values.items()}
    ranks = {len(shape) for shape in shapes.values()} - {0}
    config: Any = jax.config
    try:
        np.broadcast_shapes(*shapes.values())
        fits = len(ranks) < 2 or config.jax_numpy_rank_promotion != "raise"
    except ValueError:
        fits = False
    if not fits:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ArgumentError(f"{[*shapes][-1]}: expected shapes that broadcast, got {told}")


def is_numeric(value: object) -> bool:
    """Return whether a value is an array of numbers or booleans: of NumPy or JAX, traced, or a shape."""
    import jax
    import numpy as np

    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "shape"):
        return False
    return any(jax.numpy.issubdtype(dtype, kind) for kind in (np.number, np.bool_))


def check_array(name: str, value: object, *, real: bool = False, keys: bool = False) -> None:
    """Raise unless `value` is an array of numbers or booleans, traced or not.

    Args:
      name: the argument's name.
      value: the argument's value.
      real: whether complex numbers raise an error.
      keys: whether random keys are also allowed, as in the parameters of a model.

    Raises:
      ArgumentError: any other value; the message names the argument.
    """
    import jax

    dtype: Any = getattr(value, "dtype", None)
    of_complex = real and is_numeric(value) and jax.numpy.issubdtype(dtype, jax.numpy.complexfloating)
    of_keys = keys and dtype is not None and jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)
    if of_complex or not (is_numeric(value) or of_keys):
        got = shown(value) if dtype is None else f"dtype {dtype}"
        raise ArgumentError(f"{name}: expected an array of numbers, got {got}")


def check_arrays(name: str, tree: object) -> None:
    """Raise unless every leaf of a pytree is an array of numbers or booleans, and there is at least one."""
    import jax

    if not jax.tree.leaves(tree):
        raise ArgumentError(f"{name}: expected arrays of numbers, got {shown(tree)}")
    check_leaves(name, tree)


def check_leaves(name: str, tree: object, *, real: bool = False, keys: bool = False) -> None:
    """Raise unless every leaf of a pytree passes `check_array`; there may be none."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        at = jax.tree_util.keystr(path, simple=True, separator="/")
        check_array(f"{name}: {at}" if at else name, leaf, real=real, keys=keys)


def check_beside(name: str, value: Any, tree: object) -> None:
    """Raise unless `value` is a number or array, traced or not, that broadcasts to every leaf of `tree`."""
    import jax
    import numpy as np

    is_number = isinstance(value, numbers.Real) or is_numeric(value)
    if not is_number or np.issubdtype(getattr(value, "dtype", float), np.complexfloating):
        raise ArgumentError(f"{name}: expected a number or an array, got {shown(value)}")
    if isinstance(value, int):
        most = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max
        if abs(value) > most:
            raise ArgumentError(f"{name}: expected an integer from {-most} to {most}, got {shown(value)}")
    for leaf in jax.tree.leaves(tree):
        shapes = np.shape(value), np.shape(leaf)
        try:
            fits = np.broadcast_shapes(*shapes) == shapes[1]
        except ValueError:
            fits = False
        if not fits:
            raise ArgumentError(
                f"{name}: shape {shapes[0]} does not fit a leaf of shape {shapes[1]}; give one number"
            )


def as_number(value: Any) -> Any:
    """Return a concrete array of one number as that number, and anything else as it is."""
    is_one = is_numeric(value) and value.shape == () and hasattr(value, "item") and not is_traced(value)
    return value.item() if is_one else value


def check_list(name: str, values: object, of: str) -> None:
    """Raise unless `values` is a list, a tuple or the like; `of` describes the entries in the message."""
    import jax
    import numpy as np

    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not is_list and not (isinstance(values, np.ndarray | jax.Array) and values.ndim):
        raise ArgumentError(f"{name}: expected a list of {of}, got {shown(values)}")


def check_instance(name: str, value: object, kind: type | UnionType, of: str) -> None:
    """Raise unless a value is of a class, which the message describes by `of`."""
    if not isinstance(value, kind):
        raise ArgumentError(f"{name}: expected {of}, got {shown(value)}")


def items(name: str, values: Any, kind: type, of: str) -> list[Any]:
    """Return the entries of a list or any other iterable that is not a text.

    Raises:
      ArgumentError: any other value, or an entry of another class; the message describes the right one.
    """
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        entries = list(values)
    except TypeError:
        raise ArgumentError(f"{name}: expected a list of {of}, got {shown(values)}") from None
    for entry in entries:
        check_instance(name, entry, kind, of)
    return entries


def check_batches(batches: object) -> None:
    """Raise unless `batches` is a list of batches, and not one batch."""
    if hasattr(batches, "shape") or isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise ArgumentError(f"batches: expected a list of batches, got {shown(batches)}; give [batch]")


def check_mapping(name: str, value: object, of: str) -> None:
    """Raise unless a value is a dict or the like; the message describes the right value by `of`."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name}: expected {of}, got {shown(value)}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless a value is one of several words."""
    *others, last = map(repr, choices)
    if not is_choice(value, choices):
        raise ArgumentError(f"{name}: expected {', '.join(others)} or {last}, got {shown(value)}")


def is_choice(value: object, choices: Iterable[str]) -> bool:
    """Return whether a value is one of several words. Arrays, which compare entry by entry, are not."""
    return isinstance(value, str) and value in choices


def check_callable(name: str, value: object, *arguments: str) -> None:
    """Raise unless a value is a function that can be called with these arguments, named in the message."""
    takes = f"a function ({', '.join(arguments)})"
    if not callable(value) or isinstance(value, type):
        raise ArgumentError(f"{name}: expected {takes}, got {shown(value)}")
    try:
        inspect.signature(value).bind(*arguments)
    except TypeError as error:
        raise ArgumentError(
            f"{name}: expected {takes}, got one with other arguments ({one_line(error)})"
        ) from None
    except ValueError:
        # Some functions written in C do not tell their signature.
        return


def check_flag(name: str, value: object) -> None:
    """Raise unless a flag is `True` or `False`: any other text or number would count as one of them."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ArgumentError(f"{name}: expected True or False, got {shown(value)}")


def check_one_number(name: str, value: Any) -> None:
    """Raise if a value is an array or a list where one number is meant; traced values are checked, too."""
    import numpy as np

    try:
        shape = np.shape(value)
    except ValueError:
        raise ArgumentError(f"{name}: expected one number, got {shown(value)}") from None
    if shape != ():
        raise ArgumentError(
            f"{name}: expected one number, got shape {shape}; to give each run its own number, pass them as "
            "`settings` of over_seeds"
        )


def check_one_finite(name: str, value: Any) -> None:
    """Raise unless `value` is one finite number. If it is traced, only the shape is checked."""
    check_one_number(name, value)
    check_finite(name, value)


def check_one_positive(name: str, value: Any) -> None:
    """Raise unless `value` is one positive finite number. If it is traced, only the shape is checked."""
    check_one_number(name, value)
    check_positive(name, value)


def check_one_strength(name: str, value: Any) -> None:
    """Raise unless `value` is one finite number of at least 0. If it is traced, only the shape is checked."""
    check_one_number(name, value)
    check_strength(name, value)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise unless a static size is an integer of at least `least`, and JAX can count to it in 32 bits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ArgumentError(f"{name}: expected an integer of at least {least}, got {shown(value)}")
    if int(value) > LARGEST_COUNT:
        raise ArgumentError(f"{name}: expected an integer of at most {LARGEST_COUNT}, got {shown(value)}")


def check_key(name: str, value: object) -> None:
    """Raise unless a static number can seed a random key: an integer of 32 bits, at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**32:
        raise ArgumentError(f"{name}: expected an integer from 0 to 2^32 - 1, got {shown(value)}")


def check_one_key(key: object) -> None:
    """Raise unless `key` is one random key, from `jax.random.key` or (an old one) `jax.random.PRNGKey`."""
    import jax

    dtype: Any = getattr(key, "dtype", None)
    shape: tuple[int, ...] = getattr(key, "shape", ())
    is_new = isinstance(key, jax.Array) and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    if not (is_new and shape == ()) and not (str(dtype) == "uint32" and len(shape) == 1):
        many = "; for several keys use over_seeds" if is_new else ""
        raise ArgumentError(
            f"key: expected one random key, such as jax.random.key(0), got {shown(key)}{many}"
        )


def check_keys(keys: object) -> None:
    """Raise unless `keys` is a vector of random keys, one per run."""
    import jax

    dtype: Any = getattr(keys, "dtype", None)
    shape: tuple[int, ...] = getattr(keys, "shape", ())
    expected = (
        "keys: expected random keys of shape (runs,), such as jax.random.split(jax.random.key(0), runs)"
    )
    if isinstance(keys, jax.Array) and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        if len(shape) != 1 or not shape[0]:
            raise ArgumentError(f"{expected}, got shape {shape}")
    elif str(dtype) == "uint32" and shape[-1:] == (2,):
        raise ArgumentError(
            f"{expected}, got old keys from jax.random.PRNGKey; make them with jax.random.key, or convert "
            "them with jax.random.wrap_key_data(keys)"
        )
    else:
        raise ArgumentError(f"{expected}, got {shown(keys)}")


def check_known(argument: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Raise unless there is at least one name, and each is known."""
    known = list(known)
    if not names:
        raise ArgumentError(f"{argument}: expected at least one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ArgumentError(f"{argument}: unknown {shown(name)}; {did_you_mean(name, known)}")


def check_distinct(name: str, values: Sequence[Any]) -> None:
    """Raise if a value occurs twice, since its runs would be counted twice."""
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ArgumentError(f"{name}: {shown(repeated[0])} is named twice")


def check_widths(widths: object) -> None:
    """Raise unless `widths` holds an input size and the size of at least one layer."""
    if not isinstance(widths, Sequence) or isinstance(widths, str) or len(widths) < 2:
        raise ArgumentError(f"widths: expected an input size and at least one layer, got {shown(widths)}")
    for width in widths:
        check_count("widths", width)


def _numbers(name: str, value: object, wanted: str) -> Any:
    """Return real numbers in the precision in which JAX stores them."""
    import jax
    import numpy as np

    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":  # integers of more than 64 bits, or values that are not numbers
            array = np.asarray(value, np.float64)
        is_real = any(jax.numpy.issubdtype(array.dtype, kind) for kind in (np.integer, np.floating))
        if not is_real or (isinstance(value, list | tuple) and not array.size):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name}: expected {wanted}, got {shown(value)}") from None
    with np.errstate(over="ignore", under="ignore"):
        kept = array.astype(jax.dtypes.canonicalize_dtype(np.float64))
    if (np.isfinite(array) & (~np.isfinite(kept) | ((array != 0) & (kept == 0)))).any():
        raise ArgumentError(f"{name}: expected {wanted} that {kept.dtype} can hold, got {shown(value)}")
    return kept
