"""The structure of ``src/dotllm`` in figures, as a ratchet: none may rise, and what has fallen stays down.

    python -m tools.check_structure              # prints the figures and what is behind them; fails if one has risen
    python -m tools.check_structure --update     # after an improvement: lowers the limits in tools/structure.json

A cycle counts whichever way its imports are written: at the top of a file, in a function, for type checkers only. Who
reads one file of a cycle has to read all of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "dotllm"
LIMITS = Path(__file__).with_name("structure.json")

FILE_LINES, FUNCTION_LINES, PARAMETERS, FOLDER_FILES = 400, 100, 12, 16
PLUGIN_FILE_LINES, PLUGIN_FOLDER_FILES, PLUGIN_ROOT_FILES = 350, 14, 10
FOLDERS = ("frontend", "jump_forward", "gpu_masks", "engine_core", "workarounds")
"""The folders of the plugin, in the order in which a request comes to them; imports go down only."""
ABOVE_ALL_FOLDERS = ("", "registry")
Found = dict[str, list[str]]
"""What is behind each figure. Lines of the plugin are a figure by themselves."""


def imports() -> list[tuple[str, str]]:
    """(Module, module that it imports), of all of dotllm's."""
    graph = grimp.build_graph("dotllm", cache_dir=None)
    return [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]


def height(module: str) -> int:
    """How early requests come to the folder of a plugin's module; 0: the plugin's root, below all; -1: in no order."""
    _, package, name, *_ = (*module.split("."), "", "")
    if package != "vllm_plugin" or name in ABOVE_ALL_FOLDERS:
        return -1
    return len(FOLDERS) - FOLDERS.index(name) if name in FOLDERS else 0


def imports_upward(arrows: list[tuple[str, str]]) -> list[str]:
    """Imports of the plugin's from a folder that requests come to earlier."""
    return sorted(f"{module}: {other}" for module, other in arrows if 0 <= height(module) < height(other))


def modules_in_cycles(imported: list[tuple[str, str]]) -> list[str]:
    """Modules that import each other, by whatever way."""
    arrows = networkx.DiGraph(imported)
    return sorted(
        module for group in networkx.strongly_connected_components(arrows) if len(group) > 1 for module in group
    )


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All of a file, methods and inner ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def measure() -> tuple[Found, dict[str, int]]:
    """(What is behind the figures, figures that are counts of lines)."""
    arrows = imports()
    found: Found = defaultdict(
        list, {"modules in cycles": modules_in_cycles(arrows), "imports upward": imports_upward(arrows)}
    )
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    folders: dict[Path, int] = defaultdict(int)
    plugin_lines = 0
    for path in sorted(SOURCES.rglob("*.py")):
        name, source = path.relative_to(SOURCES), path.read_text()
        lines, tree = source.count("\n"), ast.parse(source)
        in_plugin = name.parts[0] == "vllm_plugin"
        plugin_lines += lines * in_plugin
        folders[name.parent] += 1
        if lines > (PLUGIN_FILE_LINES if in_plugin else FILE_LINES):
            found["long files"].append(f"{name}: {lines} lines")
        for node in functions(tree):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            if length > FUNCTION_LINES:
                found["long functions"].append(f"{name}: {node.name}, {length} lines")
            if arguments > PARAMETERS:
                found["functions of many parameters"].append(f"{name}: {node.name}, {arguments} parameters")
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                classes[str(name.parts[0]), statement.name].append(str(name))
    for (_, word), files in classes.items():
        if len(files) > 1:
            found["class names twice in a package"].append(f"{word}: {', '.join(files)}")
    for folder, count in folders.items():
        in_plugin = folder.parts[:1] == ("vllm_plugin",)
        root_of_plugin = folder == Path("vllm_plugin")
        limit = PLUGIN_ROOT_FILES if root_of_plugin else PLUGIN_FOLDER_FILES if in_plugin else FOLDER_FILES
        if count > limit:
            found["full folders"].append(f"{folder}: {count} files")
    return found, {"plugin lines": plugin_lines}


def main() -> int:
    """Status 1 if a figure has risen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help=f"lower the limits in {LIMITS.name}")
    update = parser.parse_args().update
    limits: dict[str, int] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    found, lines = measure()
    figures = {name: len(found[name]) for name in sorted({*found, *limits} - {*lines})} | lines
    for name, rows in sorted(found.items()):
        print(f"{name}: {len(rows)}", *rows, sep="\n  ")
    risen = {name: count for name, count in figures.items() if count > limits.get(name, count)}
    if update and not risen:
        LIMITS.write_text(json.dumps(figures, indent=2) + "\n")
    print(*(f"{name}: {count} (limit {limits.get(name, 'none')})" for name, count in figures.items()), sep="\n")
    for name, count in risen.items():
        print(f"{name} has risen from {limits[name]} to {count}", file=sys.stderr)
    return int(bool(risen))


if __name__ == "__main__":
    sys.exit(main())
