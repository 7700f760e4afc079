"""The structure of ``src/dotllm`` in figures, as a ratchet: no figure may rise, and one that has fallen stays down.

    python -m tools.check_structure              # prints the figures and their causes; fails if a figure has risen
    python -m tools.check_structure --update     # after an improvement: lowers the limits in tools/structure.json

Specifications come from strangers. So no loop in the code that reads them (`BUDGETED`) may run for minutes because a
specification is long: each loop spends a budget, checks for cancellation, or says on its line what ends it soon:
``# bounded: by …``. This holds for ``while`` loops, and for ``for`` loops over a list that the body lengthens. Kernels
cannot be cancelled; the arrays that Python makes for them bound them.

A cycle counts wherever its imports are written: at the top of a file, in a function, or only for type checkers. To read
one file of a cycle, a reader has to read all of them. Files and folders have no limit: a file holds one concept,
however long that is.

A name says what it stands for, so none is one of `BARE`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx

from dotllm.vllm_plugin.registry import ENTRIES

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "dotllm"
LIMITS = Path(__file__).with_name("structure.json")

FUNCTION_LINES, PARAMETERS = 100, 12
BARE = {"found", "here", "one", "some"}
TIERS = {"workarounds": "workaround"} | {tier: tier for tier in ("enforce", "speed", "api", "tools", "extra")}
"""The folders of the plugin, and the tier of each. Modules next to the folders are those that all of them need."""
HEIGHTS = {"workarounds": 1, "enforce": 2, "speed": 3, "api": 4, "tools": 4, "extra": 4}
"""Imports only go down: enforce does not import speed, and neither imports a feature."""
ABOVE_ALL_FOLDERS = ("", "registry")
BUDGETS = {"lines of enforce": 2000, "lines of enforce and speed": 2800, "functions that enforce replaces": 12}
"""The goals of these figures; until they are reached, each figure has its own limit, like all others."""
BUDGETED = ("languages", "grammar")
_SPENDING = frozenset({"spend", "_spend", "exceeded", "_step"})
_BOUNDED = re.compile(r"# bounded: by \w")
_KERNELS = frozenset({"kernel", "inner_kernel", "njit", "inlined"})
Places = dict[str, list[str]]
"""The places behind each figure, except counts of lines."""


def imports() -> list[tuple[str, str]]:
    """(Module, module that it imports), for all modules of dotllm."""
    graph = grimp.build_graph("dotllm", cache_dir=None)
    return [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]


def height(module: str) -> int:
    """The height of the folder of a plugin's module; 0: the plugin's root, below all folders; -1: in no order."""
    _, package, name, *_ = (*module.split("."), "", "")
    if package != "vllm_plugin" or name in ABOVE_ALL_FOLDERS:
        return -1
    return HEIGHTS.get(name, 0)


def imports_upward(arrows: list[tuple[str, str]]) -> list[str]:
    """Imports in the plugin from a higher folder."""
    return sorted(f"{module}: {other}" for module, other in arrows if 0 <= height(module) < height(other))


def modules_in_cycles(imported: list[tuple[str, str]]) -> list[str]:
    """Modules that import each other, directly or not."""
    arrows = networkx.DiGraph(imported)
    return sorted(
        module for group in networkx.strongly_connected_components(arrows) if len(group) > 1 for module in group
    )


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a file, including methods and inner functions."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def loops_without_end(tree: ast.Module, lines: list[str]) -> Iterator[ast.While | ast.For]:
    """The loops of a file that a specification can lengthen, and that nothing stops."""
    kernels = {
        id(node)
        for function in functions(tree)
        if any(_name_of(decorator) in _KERNELS for decorator in function.decorator_list)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        is_loop = isinstance(node, ast.While) or (isinstance(node, ast.For) and _lengthens_itself(node))
        if is_loop and id(node) not in kernels and not _BOUNDED.search(lines[node.lineno - 1]) and not _may_stop(node):
            yield node


def _lengthens_itself(loop: ast.For) -> bool:
    """Whether the body of ``for item in items`` makes ``items`` longer."""
    items = ast.unparse(loop.iter)
    return any(
        (isinstance(node, ast.AugAssign) and ast.unparse(node.target) == items)
        or (isinstance(node, ast.Attribute) and node.attr in ("append", "extend") and ast.unparse(node.value) == items)
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _may_stop(loop: ast.AST) -> bool:
    """Whether a loop spends a budget, passes one on, is stopped by one, or checks for cancellation."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Raise) and node.exc is not None and "BudgetExceeded" in ast.unparse(node.exc):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            handed = (*node.args, *(keyword.value for keyword in node.keywords))
            if name == "cancellation.check" or name.split(".")[-1] in _SPENDING:
                return True
            if any(ast.unparse(argument).split(".")[-1] in ("budget", "_budget", "spend") for argument in handed):
                return True
    return False


def _name_of(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")[-1]


def names_made(node: ast.AST) -> set[str]:
    """The names that ``node`` itself makes: a variable, a parameter, a function."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    return {node.arg} if isinstance(node, ast.arg) else set()


def measure() -> tuple[Places, dict[str, int]]:
    """(The places that the figures count, the figures without places)."""
    arrows = imports()
    places: Places = defaultdict(
        list, {"modules in cycles": modules_in_cycles(arrows), "imports upward": imports_upward(arrows)}
    )
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    by_tier = dict.fromkeys(TIERS.values(), 0)
    for path in sorted(SOURCES.rglob("*.py")):
        name, source = path.relative_to(SOURCES), path.read_text()
        lines, tree = source.count("\n"), ast.parse(source)
        if name.parts[0] == "vllm_plugin":
            by_tier[TIERS.get(name.parts[1], "enforce")] += lines
        if name.parts[0] in BUDGETED:
            loops = loops_without_end(tree, source.splitlines())
            places["loops without a budget"] += [f"{name}:{loop.lineno}" for loop in loops]
        places["bare names"] += [f"{name}: {bare}" for node in ast.walk(tree) for bare in BARE & names_made(node)]
        for node in functions(tree):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            if length > FUNCTION_LINES:
                places["long functions"].append(f"{name}: {node.name}, {length} lines")
            if arguments > PARAMETERS:
                places["functions of many parameters"].append(f"{name}: {node.name}, {arguments} parameters")
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                classes[str(name.parts[0]), statement.name].append(str(name))
    for (_, word), files in classes.items():
        if len(files) > 1:
            places["class names twice in a package"].append(f"{word}: {', '.join(files)}")
    together = by_tier["enforce"] + by_tier["speed"]
    return places, {f"lines of {tier}": count for tier, count in by_tier.items()} | {
        "lines of enforce and speed": together,
        "functions that enforce replaces": replaced("enforce"),
    }


def replaced(tier: str) -> int:
    """How many of vLLM's functions the hooks of a tier replace."""
    hooks = (entry.hook() for entry in ENTRIES if entry.tier == tier)
    return len({(module, name) for hook in hooks for module, name, _ in hook.replacements})


def main() -> int:
    """Status 1 if a figure has risen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help=f"lower the limits in {LIMITS.name}")
    update = parser.parse_args().update
    limits: dict[str, int] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    causes, lines = measure()
    figures = {name: len(causes[name]) for name in sorted({*causes, *limits} - {*lines})} | lines
    for name, rows in sorted(causes.items()):
        print(f"{name}: {len(rows)}", *rows, sep="\n  ")
    risen = {name: count for name, count in figures.items() if count > limits.get(name, count)}
    if update and not risen:
        LIMITS.write_text(json.dumps(figures, indent=2) + "\n")
    for name, count in figures.items():
        budget = f", budget {BUDGETS[name]}" if name in BUDGETS else ""
        print(f"{name}: {count} (limit {limits.get(name, 'none')}{budget})")
    for name, count in risen.items():
        print(f"{name} has risen from {limits[name]} to {count}", file=sys.stderr)
    return int(bool(risen))


if __name__ == "__main__":
    sys.exit(main())
