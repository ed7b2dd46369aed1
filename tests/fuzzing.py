"""Calls of public functions with one bad argument, and what becomes of each.

    python tests/fuzzing.py                      # every call: some minutes
    python tests/fuzzing.py jaxarch.spectral     # functions whose names begin so

A valid call comes from the function's own docstring: its example runs, and the call that it makes is written
down. Then one argument at a time is replaced: by values that suit few arguments, by variants of the valid
value (other shapes, dtypes, structures, NaN), and by the valid value as one that is traced. A result is fine,
since many of these values are valid somewhere. So is a refusal: one line of an `ArgumentError`, or of a
`ValueError` or `TypeError` that a `raise` of jaxarch makes. All else is raw.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import linecache
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from places import ROOT

import jaxarch
from jaxarch import ArgumentError

sys.path.insert(0, str(ROOT / "docs"))
from building import public
from places import MISSING_ADAPTERS

SEED = 38
SECONDS = 60
"""The longest that a call may take, compiling included."""
LONGEST = 400
"""Characters of a refusal."""

LEFT_OUT = {
    "jaxarch.use_cpu_cores": "it changes the process",
    "jaxarch.use_compilation_cache": "it changes the process",
    "jaxarch.lab.data.download": "it is the one function that uses the network",
}
"""Functions that are not called, and why."""

AS_LONG_AS_ASKED = {
    ("jaxarch.lab.claims.check", "ids", "None"): "all claims, which takes minutes",
    ("jaxarch.lab.claims.worst_case", "seconds", "10^30"): "a search of so many seconds",
}
"""Calls that are left out: the value is valid, and asks for much."""

BAD: dict[str, Any] = {
    "None": None,
    "text": "no such",
    "empty text": "",
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "-0.5": -0.5,
    "NaN": float("nan"),
    "inf": float("inf"),
    "10^30": 10**30,
    "True": True,
    "object": object(),
    "function": lambda: None,
    "list": [],
    "texts": ["a", "b"],
    "ragged": [[1], [1, 2]],
    "dict": {},
    "other tree": {"other": {"tree": np.ones(2, np.float32)}},
    "bytes": b"\0",
    "class": dict,
    "no numbers": np.zeros((0, 3), np.float32),
    "three axes": np.ones((2, 3, 4), np.float32),
    "NaNs": np.full(3, np.nan, np.float32),
    "integers": np.arange(3),
    "complex": np.ones(3, np.complex64),
    "texts in an array": np.array(["a", "b"]),
    "objects in an array": np.array([None, "a"], object),
    "key": jax.random.key(0),
}
"""Values that suit few arguments."""


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """Return what is like a valid value and may not be valid: other shapes, dtypes, structures."""
    leaves, treedef = jax.tree.flatten(value)
    if not any(isinstance(leaf, jax.Array | np.ndarray) and np.size(leaf) for leaf in leaves):
        return
    if any(jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key) for leaf in leaves):
        yield "many keys", jax.random.split(jax.random.key(0), 3)
        return

    def each(change: Callable[[np.ndarray], Any]) -> Callable[[], Any]:
        def changed(leaf: Any) -> Any:
            return change(np.asarray(leaf)) if hasattr(leaf, "shape") else leaf

        return lambda: treedef.unflatten(map(changed, leaves))

    made = {
        "one axis more": each(lambda x: x[None]),
        "one entry": each(lambda x: x.reshape(-1)[:1]),
        "no entry": each(lambda x: x[:0] if x.ndim else x),
        "all NaN": each(lambda x: np.full(x.shape, np.nan, np.float32)),
        "all -1": each(lambda x: np.full(x.shape, -1, x.dtype if x.dtype != bool else int)),
        "as integers": each(lambda x: np.nan_to_num(x).astype(int)),
        "as texts": each(lambda x: x.astype(str)),
        "as lists": each(lambda x: x.tolist()),
    }
    if not isinstance(value, jax.Array | np.ndarray):
        made["a leaf is None"] = lambda: treedef.unflatten([None, *leaves[1:]])
        made |= {"a list of leaves": lambda: leaves, "its first leaf": lambda: leaves[0]}
    if isinstance(value, dict):
        made["a key less"] = lambda: dict(list(value.items())[1:])
        made["a key more"] = lambda: {**value, "another": np.ones(2, np.float32)}
    for kind, make in made.items():
        # A class may not take such leaves.
        with contextlib.suppress(Exception):
            yield kind, make()


def is_traceable(value: Any) -> bool:
    """Return whether a function that jit compiles could have it as an argument."""
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array | np.ndarray | float) for leaf in leaves)


def is_traced(value: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


@contextlib.contextmanager
def recorded(entry: public.Entry) -> Iterator[list[inspect.BoundArguments]]:
    """Calls of a public function by any of its names, while an example runs."""
    calls: list[inspect.BoundArguments] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        if not is_traced((args, kwargs)):
            calls.append(inspect.signature(entry.value).bind(*args, **kwargs))
        return entry.value(*args, **kwargs)

    def put(value: Any) -> None:
        for name in entry.names:
            module, _, last = name.rpartition(".")
            setattr(importlib.import_module(module), last, value)

    put(record)
    try:
        yield calls
    finally:
        put(entry.value)


def valid_call(entry: public.Entry) -> inspect.BoundArguments | None:
    """The first call of a function in its docstring's example; `None` where there is none."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(entry.value) or "")
    names: dict[str, Any] = {"__name__": "example"}
    with recorded(entry) as calls, quiet():
        for example in examples:
            # Some show what is refused.
            with contextlib.suppress(Exception):
                exec(compile(example.source, "<example>", "single"), names)
            if calls:
                return calls[0]
    return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed or warned of, and what is written goes with a folder."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            os.chdir(here)


def bad_values(bound: inspect.BoundArguments) -> Iterator[tuple[str, str, Any]]:
    """Argument, kind of value, and the value."""
    for name, parameter in bound.signature.parameters.items():
        given = bound.arguments.get(name, parameter.default)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            # The first of them is replaced.
            if isinstance(given, tuple) and given:
                for kind, value in [*BAD.items(), *variants(given[0])]:
                    yield name, kind, (value, *given[1:])
            continue
        for kind, value in [*BAD.items(), *variants(given)]:
            yield name, kind, value
        if name in bound.arguments and is_traceable(given):
            yield name, "traced", given


def call(entry: public.Entry, bound: inspect.BoundArguments, name: str, kind: str, value: Any) -> None:
    """Call a function with one argument that is another."""

    def called(value: Any) -> None:
        given = {**bound.arguments, name: value}
        ordered = {known: given[known] for known in bound.signature.parameters if known in given}
        changed = inspect.BoundArguments(bound.signature, ordered)  # type: ignore[arg-type]
        entry.value(*changed.args, **changed.kwargs)

    if kind == "traced":
        jax.eval_shape(called, value)
    else:
        called(value)


class Slow(BaseException):
    """A call that took too long."""


def raw(function: Callable[..., None], *args: Any) -> str:
    """The exception of a call that is no refusal, and where it comes from; empty for all else."""

    def stop(*_: object) -> None:
        raise Slow(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with quiet():
            function(*args)
    except (Exception, Slow, SystemExit) as error:
        first = " ".join(str(error).split())[:100]
        return "" if is_refusal(error) else f"{where(error)}: {type(error).__name__}: {first}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return ""


def is_refusal(error: BaseException) -> bool:
    """Return whether jaxarch itself raises it, in one line."""
    text = str(error)
    if not text.strip() or len(text) > LONGEST or "\n" in text:
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = frame.filename.startswith(str(Path(jaxarch.__file__).parent))
    raised = linecache.getline(frame.filename, frame.lineno or 0).strip().startswith("raise ")
    return isinstance(error, ArgumentError) or (isinstance(error, ValueError | TypeError) and ours and raised)


def where(error: BaseException) -> str:
    """The innermost line of jaxarch that an exception passes."""
    package = str(Path(jaxarch.__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(package)]
    return f"{frames[-1].filename[len(package) + 1 :]}:{frames[-1].lineno}" if frames else "elsewhere"


def functions(beginning: str = "") -> list[public.Entry]:
    """Public functions that are called."""
    return [
        entry
        for entry in public.entries()
        if entry.is_function
        and entry.name.startswith(beginning)
        and entry.name not in LEFT_OUT
        and entry.section not in MISSING_ADAPTERS
        and entry.name.removeprefix("jaxarch.") not in public.SPOKEN_OF
    ]


def fuzz(entry: public.Entry, most: int | None = None) -> tuple[int, dict[tuple[str, str], list[str]]]:
    """Return how many calls there were, and kinds of bad values by argument and raw exception.

    Args:
      entry: the function.
      most: of more calls, so many are drawn, always the same ones; `None` for all.
    """
    bound = valid_call(entry)
    if bound is None:
        return 0, {}
    values = [each for each in bad_values(bound) if (entry.name, *each[:2]) not in AS_LONG_AS_ASKED]
    if most is not None and len(values) > most:
        values = random.Random(f"{SEED} {entry.name}").sample(values, most)
    found = defaultdict(list)
    for name, kind, value in values:
        if said := raw(call, entry, bound, name, kind, value):
            found[name, said].append(kind)
    return len(values), found


def main() -> None:
    """Print what is raw."""
    total = raw_ones = 0
    for entry in functions(*sys.argv[1:]):
        start = time.perf_counter()
        count, found = fuzz(entry)
        of_entry = sum(map(len, found.values()))
        total, raw_ones = total + count, raw_ones + of_entry
        seconds = time.perf_counter() - start
        print(f"{entry.name}: {count} calls, {of_entry} raw, {seconds:.1f} s", flush=True)
        for (name, said), kinds in found.items():
            print(f"  {name} = {', '.join(kinds)}: {said}", flush=True)
    print(f"{total} calls, {raw_ones} raw")


if __name__ == "__main__":
    main()
