"""How many deliberate faults in our functions the tests notice, for each file.

    python -m tools.mutants src/dotllm/compilation [--sample 10] [--seed 0] [--tests "tests/…"] [--seconds 30]
    python -m tools.mutants src/dotllm/automata/machine --python-kernels --longest 4

A fault changes an operator, a constant or a condition, or drops a call. No file is changed: this process imports the
tests, and each mutant is a fork of it in which the function has other code. So a mutant does not start an interpreter:
it runs only the tests that call the function, the fastest first, until one fails. Code that runs at import or in other
processes is left out. Kernels have machine code: ``--python-kernels`` runs them as Python, and mutates only them.

Survivors are printed: each needs a test, or changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import cProfile
import gc
import importlib
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.forked import forked
from tools import python_kernels

ROOT = Path(__file__).parent.parent
TESTS = {
    "automata": "tests/automata tests/index/test_guide.py tests/index/test_soundness.py",
    "automata/dfa": "tests/automata/test_dfa.py tests/languages/regex/test_corpus.py",
    "compilation": "tests/compilation --ignore-glob=*/test_process.py --ignore-glob=*/test_remote.py",
    "grammar": "tests/grammar tests/languages/ebnf tests/languages/regex tests/languages/test_end_tokens.py",
    "index": "tests/index",
    "languages/json_schema": "tests/languages/json_schema",
    "vllm_plugin/enforce": "tests/vllm_plugin/engine_core",
    "vllm_plugin/speed": "tests/vllm_plugin/engine_core tests/vllm_plugin/gpu_masks",
}
"""The tests of a folder of src/dotllm; the longest matching name counts."""
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
NOT_MUTATED = (ast.Raise, ast.JoinedStr, ast.Assert)  # messages, and checks that cannot fail
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    file: Path
    function: Function
    """The outermost function."""
    place: int
    """The number of the node among the function's `nodes`."""
    change: int
    """The number of the change among the node's `changes`."""


class Test(NamedTuple):
    number: int
    seconds: float
    """CPU seconds."""
    called: set[tuple[str, int]]
    """File and first line of the functions that it calls."""


def changes(node: ast.AST) -> list[ast.AST]:
    """The mutations of ``node``."""
    if isinstance(node, ast.Compare):
        return [
            with_field(node, ops=[*node.ops[:i], OTHER[type(op)](), *node.ops[i + 1 :]])
            for i, op in enumerate(node.ops)
        ]
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in OTHER:
        return [with_field(node, op=OTHER[type(node.op)]())]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return [ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [with_field(node, test=ast.UnaryOp(ast.Not(), node.test))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [ast.If(ast.Constant(False), [node], [])]  # (a function that calls super() still does)
    if isinstance(node, ast.Break | ast.Continue):
        return [OTHER[type(node)]()]
    return []


def with_field(node: ast.AST, **fields: Any) -> ast.AST:
    """A copy of ``node`` with other fields."""
    out = copy.copy(node)
    for name, value in fields.items():
        setattr(out, name, value)
    return out


def nodes(function: Function) -> list[ast.AST]:
    """The nodes of a function that are mutated, in a fixed order."""
    out: list[ast.AST] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, NOT_MUTATED):
            continue
        out.append(node)
        skipped = {"annotation", "returns", "args", "decorator_list"} if isinstance(node, Function) else {"annotation"}
        for name, value in ast.iter_fields(node):
            if name not in skipped:
                todo += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
    return out


def functions(tree: ast.AST) -> Iterator[Function]:
    """The outermost functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node
        else:
            yield from functions(node)


def first_line(function: Function) -> int:
    """The first line of the function's code object: that of its first decorator."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def decorators(function: Function) -> list[str]:
    return [ast.unparse(one) for one in function.decorator_list]


def mutants(file: Path, kernels: bool) -> list[Mutant]:
    """All mutants of a file."""
    return [
        Mutant(file, function, place, change)
        for function in functions(ast.parse(file.read_text()))
        if kernels == any("kernel" in decorator for decorator in decorators(function))
        and "intrinsic" not in decorators(function)
        for place, node in enumerate(nodes(function))
        for change in range(len(changes(node)))
    ]


class Replace(ast.NodeTransformer):
    """Replaces ``old`` by ``new``."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def apply(mutant: Mutant) -> str:
    """Give the function its new code in this process. Returns the change, or "" if no live function has the code."""
    tree = ast.parse(mutant.file.read_text())
    function = next(one for one in functions(tree) if one.lineno == mutant.function.lineno)
    old = nodes(function)[mutant.place]
    new = changes(old)[mutant.change]
    was = ast.unparse(old).splitlines()[0]
    Replace(old, new).visit(tree)
    ast.fix_missing_locations(tree)
    if python_kernels.are_installed():
        tree = python_kernels.as_python(tree)
    codes = {(one.co_qualname, one.co_firstlineno): one for one in all_codes(compile(tree, str(mutant.file), "exec"))}
    is_applied = False
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename == str(mutant.file):
            code = codes.get((found.__code__.co_qualname, found.__code__.co_firstlineno))
            if code is not None and code.co_freevars == found.__code__.co_freevars:
                found.__code__ = code
                is_applied |= code.co_firstlineno == first_line(mutant.function)
    if not is_applied:
        return ""
    return f"{mutant.file.relative_to(ROOT)}:{getattr(old, 'lineno', 0)}: {was}  ->  {ast.unparse(new).splitlines()[0]}"


def all_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from all_codes(constant)


class Mutate:
    """The plugin that runs the collected tests, first on the real code, then on mutants."""

    def __init__(self, files: list[Path], options: argparse.Namespace) -> None:
        self.files, self.options = files, options
        self.rows: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        longest = self.options.longest
        baseline = [
            forked(partial(measured, session, number), longest, 3 * longest + 10)
            for number in range(len(session.items))
        ]
        tests = sorted([test for test in baseline if test is not None], key=lambda test: test.seconds)
        seconds = sum(test.seconds for test in tests)
        left_out = len(baseline) - len(tests)
        print(f"{len(tests)} tests of {seconds:.0f} s; left out, as they fail or take longer: {left_out}", flush=True)
        for file in self.files:
            found = mutants(file, self.options.python_kernels)
            chosen = random.Random(self.options.seed).sample(found, min(self.options.sample, len(found)))
            import_module(file)
            killed = [self.is_killed(session, tests, mutant) for mutant in chosen]
            if chosen:
                self.rows.append(
                    f"{killed.count(True):4} of {len(chosen) - killed.count(None):3} killed, "
                    f"{killed.count(None):2} called by no test  {file.relative_to(ROOT)}"
                )
                print(self.rows[-1], flush=True)
        return True

    def is_killed(self, session: pytest.Session, tests: list[Test], mutant: Mutant) -> bool | None:
        """Whether a test fails; None if no test calls the function (or if tests call a copy of it)."""
        here = str(mutant.file), first_line(mutant.function)
        fitting, seconds = [], 0.0
        for test in tests:
            if here in test.called and seconds + test.seconds < self.options.seconds:
                fitting.append(test.number)
                seconds += test.seconds
        if not fitting:
            return None
        survived = forked(
            lambda: (apply(mutant), not any(fails(session, number) for number in fitting)),
            3 * seconds + 10,
            5 * seconds + 15,  # a mutant that waits forever is noticed, too
        )
        if survived is not None and not survived[0]:
            return None
        if survived is not None and survived[1]:
            print(f"survived {len(fitting)} tests: {survived[0]}", flush=True)
        return survived is None or not survived[1]


def import_module(file: Path) -> None:
    """Import the module before it is mutated: a test that imported it while it runs would get the original code."""
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def fails(session: pytest.Session, number: int) -> bool:
    """Run a test and take down its fixtures; whether it fails."""
    return any(report.failed for report in runtestprotocol(session.items[number], log=False, nextitem=None))


def measured(session: pytest.Session, number: int) -> Test | None:
    """A test without a mutant; None if it fails."""
    called: set[CodeType] = set()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    began = time.process_time()
    profiler = cProfile.Profile(builtins=False)  # profiles this thread, with less work for each call
    threading.setprofile(note)
    profiler.enable()
    failed = fails(session, number)
    profiler.disable()
    threading.setprofile(None)  # type: ignore[arg-type]
    called.update(entry.code for entry in profiler.getstats() if isinstance(entry.code, CodeType))
    ours = {(code.co_filename, code.co_firstlineno) for code in called if "/src/dotllm/" in code.co_filename}
    return None if failed else Test(number, time.process_time() - began, ours)


def tests_of(file: str) -> str:
    return TESTS[max((folder for folder in TESTS if file.startswith(folder)), key=len)]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="+", type=Path, help="a file, or a folder of them")
    parser.add_argument("--sample", type=int, default=10, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", default="", help="in place of those of TESTS")
    parser.add_argument("--seconds", type=float, default=30, help="of tests for a mutant")
    parser.add_argument("--longest", type=float, default=30, help="seconds of a test; longer ones are left out")
    parser.add_argument("--python-kernels", action="store_true")
    options = parser.parse_args()
    if options.python_kernels:
        python_kernels.install()
    files = [
        file for given in options.module
        for file in ([given.resolve()] if given.suffix == ".py" else sorted(given.resolve().rglob("*.py")))
    ]  # fmt: skip
    tests = {options.tests or tests_of(file.relative_to(ROOT / "src" / "dotllm").as_posix()) for file in files}
    if len(tests) > 1:
        parser.error("files of one folder of TESTS at a time")
    plugin = Mutate(files, options)
    pytest.main(["-q", "-s", "-p", "no:cacheprovider", *tests.pop().split()], plugins=[plugin])
    print("\n".join(plugin.rows))


if __name__ == "__main__":
    main()
