"""Break functions one small step at a time, and name the mutants that no test notices.

    python tests/mutate.py                                  # the functions of CORE: half an hour of a core
    python tests/mutate.py jaxarch.masks._largest:top_k tests/masks/test_keep.py
    python tests/mutate.py jaxarch._internal.order_statistics tests/internal/test_order_statistics.py --long

A mutant is known by its function, its operator and its line. Only bodies of functions change: no annotation,
no default, no text of an error. Each mutant runs `pytest -x` on a copy of the package, in a process forked
from one that has imported JAX; compiled programs are kept between mutants. A survivor is a missing test, or a
mutant that computes the same: only a reader can tell.
"""

import argparse
import ast
import compileall
import copy
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

from places import ROOT

CORE = {
    "jaxarch.masks._largest": "tests/masks/test_keep.py tests/masks/test_masks.py",
    "jaxarch._internal.order_statistics": "tests/internal/test_order_statistics.py",
    "jaxarch.optim._hold": "tests/optim/test_hold.py",
    "jaxarch.certificates._counting": "tests/certificates/test_certify.py",
    "jaxarch.theory.generalization._binomial": "tests/theory/test_generalization.py",
}
"""Tests of each module that is tried where none is named."""
IMPORTED = "pytest hypothesis jax flax.nnx flax.linen optax scipy.stats pandas sklearn"
SECONDS = 300
"""The longest that the tests of a mutant may take. One that loops forever counts as killed."""

SWAPS = """
    Lt:LtE Lt:GtE LtE:Lt LtE:Gt Gt:GtE Gt:LtE GtE:Gt GtE:Lt Eq:NotEq NotEq:Eq In:NotIn NotIn:In Is:IsNot
    IsNot:Is And:Or Or:And Add:Sub Sub:Add Mult:Div Div:Mult FloorDiv:Mult Pow:Mult Mod:Add MatMult:Mult
    BitAnd:BitOr BitOr:BitAnd BitXor:BitAnd LShift:RShift RShift:LShift
"""
"""Names of classes of `ast`: an operator, and one that takes its place."""


def but(node: ast.AST, **changed: object) -> ast.AST:
    """Return a copy of a node with some fields changed."""
    new = copy.copy(node)
    vars(new).update(changed)
    return new


def swapped(op: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the swaps of `SWAPS` for an operator: their names, and what takes its place."""
    for swap in SWAPS.split():
        old, new = swap.split(":")
        if old == type(op).__name__:
            yield swap, getattr(ast, new)()


def broken(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names of operators, and what they make of a node."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            yield from ((swap, but(node, op=new)) for swap, new in swapped(op))
        case ast.Compare(ops=[op]):
            yield from ((swap, but(node, ops=[new])) for swap, new in swapped(op))
        case ast.Constant(value=bool()):
            yield "other-boolean", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant+1", ast.Constant(node.value + 1)
        case ast.UnaryOp(op=op):
            yield f"drop-{type(op).__name__}", node.operand
        case ast.Return(value=ast.Call(args=[first, *_])) | ast.Assign(value=ast.Call(args=[first, *_])) if (
            not isinstance(first, ast.Starred)
        ):
            yield "argument-for-call", but(node, value=first)
        case ast.If() | ast.IfExp() | ast.While():
            yield "negate-condition", but(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension(ifs=[_, *_]):
            yield "drop-filter", but(node, ifs=[])
    if isinstance(node, ast.Expr | ast.Raise | ast.AugAssign):
        yield "drop-statement", ast.Pass()


def places(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST, str, int | None]]:
    """Functions, and where each node of their bodies hangs: parent, field, and place in a list."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(value, ast.arguments):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if not isinstance(child, ast.AST) or is_docstring:
                continue
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            if name and not is_named:
                yield name, node, field, index
            if not isinstance(child, ast.Raise):
                yield from places(child, f"{name}.{child.name}".lstrip(".") if is_named else name)


def mutants(source: str, function: str) -> Iterator[tuple[str, str, int, str]]:
    """Function, operator and line of every mutant of a module or of one of its functions, and its source."""
    tree = ast.parse(source)
    for name, parent, field, index in list(places(tree)):
        held = getattr(parent, field)
        node = held if index is None else held[index]
        for operator, new in broken(node) if f"{name}.".startswith(f"{function}.".lstrip(".")) else ():
            line = getattr(node, "lineno", getattr(parent, "lineno", 0))
            for put in (new, node):
                if index is None:
                    setattr(parent, field, put)
                else:
                    held[index] = put
                if put is new:
                    yield name, operator, line, ast.unparse(ast.fix_missing_locations(tree))


def status_of(place: Path, options: list[str]) -> int:
    """The exit status of a pytest in a process of its own; negative if it was ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.chdir(place)
        sys.path.insert(0, str(place))
        silent = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        import pytest

        os._exit(int(pytest.main(options)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def try_all(place: Path, target: str, tests: list[str], long: bool) -> tuple[int, int]:
    """Return how many mutants of a target there are, and how many survive; each is printed as it is tried."""
    module, _, function = target.partition(":")
    file = place / f"{module.replace('.', '/')}.py"
    source = file.read_text()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *tests]
    options += [] if long else ["-m", "not long"]
    file.write_text(ast.unparse(ast.parse(source)))
    if status_of(place, options):
        sys.exit(f"{target}: the tests fail without a mutant\n{(place / 'said').read_text()[-2000:]}")
    count = survived = 0
    for name, operator, line, text in mutants(source, function):
        file.write_text(text)
        outlived = status_of(place, options) == 0
        count, survived = count + 1, survived + outlived
        print("survived" if outlived else "killed  ", f"{module}:{name} {operator} line {line}", flush=True)
    file.write_text(source)
    print(f"{target}: {count - survived} of {count} killed", flush=True)
    return count, survived


def main() -> None:
    """Try the mutants of the target on the command line, or of CORE."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", help="a module, or module:function")
    parser.add_argument("tests", nargs="*", help="files or nodes of tests that should kill its mutants")
    parser.add_argument("--long", action="store_true", help="run long tests too")
    chosen = parser.parse_args()
    if chosen.target and not (chosen.tests or chosen.target in CORE):
        parser.error(f"{chosen.target}: name the tests that should kill its mutants")
    targets = {chosen.target: " ".join(chosen.tests) or CORE[chosen.target]} if chosen.target else CORE
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copy"
        ignored = shutil.ignore_patterns("__pycache__", ".*", "_build")
        shutil.copytree(ROOT, place, ignore=ignored)
        # Python tells a file that changed from its bytecode by a hash, as size and second may agree.
        compileall.compile_dir(place / "jaxarch", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        os.environ |= {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/programs",
        }
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        for name in IMPORTED.split():
            importlib.import_module(name)
        counts = [try_all(place, target, tests.split(), chosen.long) for target, tests in targets.items()]
    print(f"{sum(n for n, _ in counts) - sum(s for _, s in counts)} of {sum(n for n, _ in counts)} killed")


if __name__ == "__main__":
    main()
