"""The ledger of vLLM's functions: what a hash covers, and what fails until somebody has signed it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dotllm.cli import ledger
from dotllm.vllm_plugin import registry, vllm_types
from dotllm.vllm_plugin.releases import SUPPORTED
from tools import check_hooks

BEFORE = '''
from other import imported
class Params:
    """Text."""
    first: int = 0
    second: str
    KNOWN: ClassVar[int] = 1
    plain = None
    def __post_init__(self):
        self.later = 1
def step(a, b: int, *, c=1) -> int:
    """Says what it does."""
    x: int = a  # a comment
    if b and (c or a):
        return x + f"{a!r:>{b}} and {c}"
    return [i for i in range(b)], lambda y: y ** 2
'''


def state(name: str, text: str) -> ledger.State:
    return ledger.state(f"m:{name}", {"m": text}.get)


SAME = [
    ('    """Says what it does."""\n', ""),
    ('"""Says what it does."""', '"""Says it\n\n    in other words."""'),
    ("  # a comment", ""),
    ("b: int", "b"),
    (" -> int", " -> str"),
    ("x: int = a", "x: object = a"),
    ("(c or a)", "(\n        c\n        or a\n    )"),
]
OTHER = [
    ("c=1", "c=2"),
    ("a, b", "b, a"),
    ("*, c=1", "*, c=1, d=None"),
    ("b and", "b or"),
    ("x + f", "x - f"),
    ("a!r", "a!s"),
    ("range(b)", "range(b + 1)"),
    ("y ** 2", "y ** 3"),
    (" and {c}", " and  {c}"),
    ("    return [i", "    print()\n    return [i"),
    ("def step", "async def step"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_how_a_function_is_written_does_not_count(old: str, new: str) -> None:
    assert old in BEFORE and state("step", BEFORE) == state("step", BEFORE.replace(old, new))


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_a_function_does_counts(old: str, new: str) -> None:
    assert old in BEFORE and state("step", BEFORE) != state("step", BEFORE.replace(old, new))
    if "def" not in new:
        assert ast.parse(BEFORE.replace(old, new))


def test_a_hash_has_nothing_of_the_python_that_reads() -> None:
    """The ledger is made with one version of Python and compared with any. Fields that only later versions have are
    empty here, and left out."""
    assert state("step", BEFORE) == "1e9497ebbbcaa823"


def test_fields_and_attributes() -> None:
    assert state("Params", BEFORE) == ["first", "second"]
    assert [state(name, BEFORE) for name in ("Params.second", "Params.later", "imported")] == [ledger.THERE] * 3
    assert [state(f"Params.{name}", BEFORE) for name in ("first", "KNOWN", "plain")] == ["= 0", "= 1", "= None"]
    assert [state(name, BEFORE) for name in ("Params.x", "gone", "Gone.first", "Params.step")] == [ledger.ABSENT] * 4
    assert ledger.state("n:step", {"m": BEFORE}.get) == ledger.ABSENT


def test_what_has_changed_is_named_until_it_is_signed(tmp_path: Path) -> None:
    names, file = ["m:step", "m:Params", "m:Params.first", "m:new"], tmp_path / "ledger.json"
    check_hooks.sign("1.0.0", names[:3], {"m": BEFORE}.get, file=file)
    now = BEFORE.replace("c=1", "c=2").replace("    second: str", "    third: str").replace("    first: int = 0", "")

    def changes() -> dict[str, str]:
        return {change.name: change.how for change in ledger.changes("1.0.0", names, {"m": now}.get, ledger.read(file))}

    assert changes() == {
        "m:step": "its body or its parameters have changed",
        "m:Params": "new field third; no field first any more; no field second any more",
        "m:Params.first": "it is gone",
        "m:new": "nobody has signed it",
    }
    check_hooks.sign("1.0.0", ["m:step"], {"m": now}.get, file=file)
    assert set(changes()) == {"m:Params", "m:Params.first", "m:new"}
    check_hooks.sign("1.0.0", names[1:], {"m": now}.get, file=file)
    assert changes() == {}


def test_what_differs_from_the_release_before_is_signed_with_a_note_only(tmp_path: Path) -> None:
    names, file, source = ["m:step", "m:Params"], tmp_path / "ledger.json", {"m": BEFORE}.get
    changed = {"m": BEFORE.replace("c=1", "c=2")}.get
    check_hooks.sign("1.0.0", names, source, file=file)
    check_hooks.sign("2.0.0", ["m:Params"], changed, file=file)
    with pytest.raises(ValueError, match=r"m:step differs from 1\.0\.0"):
        check_hooks.sign("2.0.0", names, changed, file=file)
    assert "m:step" not in ledger.read(file)["2.0.0"], "nothing is written then"
    check_hooks.sign("2.0.0", ["m:step"], changed, "A default; nobody leaves c out.", file=file)
    assert check_hooks.notes(file)["2.0.0"] == {"m:step": "A default; nobody leaves c out."}
    check_hooks.sign("2.0.0", names, changed, file=file)  # nothing has changed since, so the note still holds
    assert check_hooks.unexplained(ledger.read(file), check_hooks.notes(file)) == []
    assert check_hooks.unexplained(ledger.read(file), {}) == [("2.0.0", "m:step")]
    with pytest.raises(ValueError, match="m:step differs"):
        check_hooks.sign("2.0.0", ["m:step"], {"m": BEFORE.replace("c=1", "c=3")}.get, file=file)
    check_hooks.sign("2.0.0", ["m:step"], source, file=file)
    assert check_hooks.notes(file)["2.0.0"] == {}, "it is as before"


def test_everything_that_differs_between_supported_releases_has_been_explained() -> None:
    signed, said = ledger.read(), check_hooks.notes()
    assert check_hooks.unexplained(signed, said) == []
    for release, notes in said.items():
        assert {*notes} <= {*signed[release]}
        for name, note in notes.items():
            assert note.endswith(".") and len(note.split()) > 4, name


OURS = {
    *(
        "_dotllm_in_step",
        "_dotllm_marks",
        "_dotllm_text",
        "_pending",
        "accepted_ahead",
        "dotllm_code",
        "limit",
        "results",
    ),
    # Members of classes from pydantic, transformers, torch, and other packages.
    *("model_extra", "model_fields", "added_tokens_decoder", "all_special_tokens", "query"),
    # Members of OpenAI's types (tools, events, formats), which are a client's data, and of errors.
    *("type", "format", "schema_", "details"),
}
"""Members outside vLLM that the plugin reads with ``getattr``."""


def test_members_that_are_read_by_getattr_are_in_the_ledger() -> None:
    """If vLLM dropped a name, nobody would notice: `getattr` has a default."""
    pytest.importorskip("vllm")
    names = ledger.names(registry.hooks())
    fields = (state for state in ledger.read()[f"{SUPPORTED[-1]}.0"].values() if isinstance(state, list))
    protocols = [one for one in vars(vllm_types).values() if isinstance(one, type)]
    known = {
        *(re.split(r"[.:]", name)[-1] for name in names),
        *(name for one in fields for name in one),
        *(name for one in protocols for name in (*vars(one), *getattr(one, "__annotations__", ()))),
        *(target.name.rpartition(".")[2] for hook in registry.hooks() for target in hook.targets),
    }
    read = {}
    for file in Path(vllm_types.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
                name = node.args[1]
                if isinstance(name, ast.Constant):
                    read[name.value] = file.name
    assert len(read) > 40
    assert {name: file for name, file in read.items() if name not in known | OURS} == {}
    assert {*read} >= OURS


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.32.0", "0.32.0"), ("0.32.1+cpu", "0.32.0"), ("0.33.2", "0.33.0"), ("0.34.0", "0.33.0"), ("dev", "0.33.0")],
)
def test_a_version_is_compared_with_its_release_or_the_newest(version: str, release: str) -> None:
    assert ledger.of_release(version, {"0.32.0": {}, "0.33.0": {}}) == release


def test_each_supported_release_has_all_that_hooks_rest_on() -> None:
    pytest.importorskip("vllm")
    wanted = ledger.names(registry.hooks())
    for release in SUPPORTED:
        signed = ledger.read()[f"{release}.0"]
        assert sorted(signed) == wanted, "tools/check_hooks.py --sign writes what is new, and what nobody needs goes"


@pytest.mark.serve
def test_the_installed_vllm_is_as_it_was_signed() -> None:
    done = subprocess.run(
        [sys.executable, "tools/check_hooks.py", "--installed"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
