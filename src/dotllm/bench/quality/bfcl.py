"""Cases of the Berkeley Function Calling Leaderboard, version 4, and its own judge.

Data and judge come from the package ``bfcl-eval`` (Apache-2.0), installed with ``--no-deps`` or unpacked into a folder.
https://gorilla.cs.berkeley.edu/leaderboard.html
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from dotllm.bench.quality.cases import Call, Case, Function, Shape

SETS: dict[str, Shape] = {
    "simple_python": "arguments",
    "live_simple": "arguments",
    "multiple": "call",
    "live_multiple": "call",
    "parallel": "calls",
    "irrelevance": "arguments",
}
NO_ANSWERS = ("irrelevance",)
"""Sets in which the right answer has no call."""
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL's names of types, which are Python's, and their translations to JSON Schema by BFCL's own handlers."""


class Missing(RuntimeError):
    """The package is not installed; the message says how to install it."""


def cases(name: str) -> Iterator[Case]:
    """The cases of a set of `SETS`.

    Yields:
        Each case, in the order of the file.

    Raises:
        Missing: the package is not installed.
    """
    folder = _folder()
    questions = _lines(folder / "data" / f"BFCL_v4_{name}.json")
    answers: dict[str, Any] = {}
    if name not in NO_ANSWERS:
        listed = _lines(folder / "data" / "possible_answer" / f"BFCL_v4_{name}.json")
        answers = {line["id"]: line["ground_truth"] for line in listed}
    for line in questions:
        functions = [
            # OpenAI's API has no dots in names.
            Function(_api_name(f["name"]), f["description"], translate(f["parameters"]))
            for f in line["function"]
        ]
        judge = _Judge(name, line["function"], answers[line["id"]]) if answers else _calls_nothing
        wanted = [
            (_api_name(called), arguments) for call in answers.get(line["id"], ()) for called, arguments in call.items()
        ]
        yield Case(
            line["id"],
            name,
            line["question"][0],
            functions,
            SETS[name],
            judge,
            wants_call=name not in NO_ANSWERS,
            wanted=wanted,
        )


def translate(schema: Any) -> Any:
    """A schema with JSON Schema's names of types."""
    if isinstance(schema, list):
        return [translate(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    renamed = {"type": TYPES.get(kind, kind)} if isinstance(kind, str) else {}
    return {key: translate(part) for key, part in schema.items()} | renamed


def _api_name(name: str) -> str:
    return name.replace(".", "_")


def _calls_nothing(calls: Sequence[Call]) -> str:
    return "a call" if calls else ""


class _Judge:
    def __init__(self, name: str, functions: Sequence[dict[str, Any]], answers: Sequence[dict[str, Any]]) -> None:
        self.name = name
        self.functions = functions
        self.answers = answers

    def __call__(self, calls: Sequence[Call]) -> str:
        if not all(isinstance(call.arguments, dict) for call in calls):
            return "arguments are not an object"
        checker = _checker()
        made = [{call.name: call.arguments} for call in calls]
        language = sys.modules["bfcl_eval.constants.enums"].Language.PYTHON
        try:
            verdict = checker.ast_checker(self.functions, made, self.answers, language, self.name, MODEL)
        except (AttributeError, KeyError, TypeError) as error:  # the judge does not expect values of some types
            return f"judge failed: {type(error).__name__}"
        if verdict["valid"]:
            return ""
        return _class(verdict)


def _class(verdict: Mapping[str, Any]) -> str:
    """The checker's class of a fault; for parallel calls, the class of the first call without a matching answer."""
    kind = str(verdict["error_type"])
    inner = re.search(r"'error_type': '([^']+)'", str(verdict.get("error", "")))
    return inner.group(1) if inner else kind


MODEL = "any"
MODEL_TABLE = "bfcl_eval.constants.model_config"
"""The leaderboard's table of models. It imports the client libraries of all models, but the judge only asks it whether
names have no dots."""


def _checker() -> Any:
    if MODEL_TABLE not in sys.modules:
        table = ModuleType(MODEL_TABLE)
        table.MODEL_CONFIG_MAPPING = {MODEL: SimpleNamespace(underscore_to_dot=True)}  # type: ignore[attr-defined]
        sys.modules[MODEL_TABLE] = table
    return importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")


def _folder() -> Path:
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise Missing("BFCL's cases need its package: pip install --no-deps bfcl-eval==2026.3.23")
    return Path(spec.submodule_search_locations[0])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
