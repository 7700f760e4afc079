"""What users of other engines look for: texts accepted in one call, a compiler with a cache, Python's `warnings`."""

from __future__ import annotations

import dataclasses
import random
import re
import threading
import warnings
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from typing_extensions import TypedDict

import dotllm
from dotllm import Compiler, Index, SpecWarning, Vocabulary
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.errors import InvalidSpecError
from dotllm.index.guide import Guide
from dotllm.index.unique import UniqueGuide

VOCABULARY = byte_vocabulary()
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}, "b": UNIQUE}, "required": ["b"]}


def index_of(schema: Any) -> Index:
    return Index.from_json_schema(schema, VOCABULARY)


def test_a_text_is_taken_or_changes_nothing() -> None:
    guide = Index.from_regex("(é|b)+c", VOCABULARY).guide()
    assert guide.accept_string("éb") and guide.accept_string("é".encode()[:1])
    before = guide.config
    assert not guide.accept_string("b") and not guide.accept_string("\ud800") and guide.config == before
    assert guide.tokens_taken == 2 and guide.accept_string("é".encode()[1:] + b"c") and guide.can_finish
    guide.rollback(2)
    assert guide.accept_string("c") and not guide.accept_string("c")
    assert guide.advance(VOCABULARY.eos_token_ids[0]) and not guide.accept_string("c")


def test_a_text_is_taken_by_guides_that_remember() -> None:
    guide = index_of(UNIQUE).guide()
    assert isinstance(guide, UniqueGuide) and guide.accept_string("[1, 2")
    assert not guide.accept_string(", 1]") and guide.accept_string("3, 2, 14")
    fork = guide.fork()
    assert guide.accept_string("]") and guide.can_finish
    guide.rollback(1)
    assert not guide.can_finish and not fork.accept_string(", 23]") and fork.accept_string(", 24]")


@pytest.mark.parametrize("schema", [OBJECT, UNIQUE, {"anyOf": [UNIQUE, {"type": "string"}]}])
def test_texts_in_pieces_are_tokens_of_bytes(schema: Any) -> None:
    """However a text is cut, it leads to the same place as its single bytes, and back."""
    chance, index = random.Random(2), index_of(schema)
    for text in ('{"a": "é", "b": [1, 12, 2]}', '{"b": [1, 1]}', "[10, 1, 0]", "[1, 10, 1]", '"[1"', '{"a":1}', "[1,2"):
        data = text.encode()
        for _ in range(20):
            whole, single = index.guide(), index.guide()
            steps = at = 0
            while at < len(data):
                piece = data[at : at + chance.randint(1, 6)]
                taken = single.accepts([*piece]) == len(piece)
                assert whole.accept_string(piece) == taken
                if not taken:
                    break
                assert all(map(single.advance, piece))
                assert [*whole.allowed_tokens()] == [*single.allowed_tokens()]
                assert whole.can_finish == single.can_finish
                steps, at = steps + 1, at + len(piece)
            whole.rollback(steps)
            assert [*whole.allowed_tokens()] == [*index.guide().allowed_tokens()]


def test_what_is_misspelt_is_warned_of_once_for_each_compile() -> None:
    schema = {"type": "object", "requierd": ["a"]}
    with pytest.warns(SpecWarning, match='did you mean "required".*at /requierd') as caught:
        index_of(schema)
    assert len(caught) == 1 and caught[0].filename == index_of.__code__.co_filename
    with pytest.warns(SpecWarning) as caught:
        index_of('{"properties": {"a": {"maxLenght": 1, "format": "emial"}}}')
    assert len(caught) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=SpecWarning)
        index_of(schema)
        warnings.resetwarnings()
        warnings.simplefilter("error")
        index_of(OBJECT)
        with pytest.raises(SpecWarning):
            index_of(schema)


def test_a_compiler_takes_a_tokenizer(demo_model: Path) -> None:
    transformers = pytest.importorskip("transformers")
    compiler = Compiler(transformers.AutoTokenizer.from_pretrained(demo_model))
    guide = compiler.from_regex("information").guide()
    assert compiler.vocabulary.eos_token_ids == (2,) and guide.accept_string("information") and guide.can_finish


def test_a_compiler_compiles_once_while_there_is_room() -> None:
    compiler = Compiler(VOCABULARY)
    assert compiler.from_json_schema(OBJECT) is compiler.from_json_schema(dict(OBJECT))
    assert compiler.from_json_schema(OBJECT) is not compiler.from_json_schema(OBJECT, property_order="any")
    assert compiler.from_json_schema({"const": 1}) is not compiler.from_json_schema({"const": True})
    assert compiler.from_regex("a") is compiler.from_regex("a") is not compiler.from_regex("a", search=True)
    assert compiler.from_choice(("a", "b")) is compiler.from_choice(["a", "b"])
    assert compiler.from_grammar('start: "a"') is not compiler.from_regex('start: "a"')
    assert compiler.from_json_object() is compiler.from_json_object()
    tag = {"type": "structural_tag", "format": {"type": "any_text"}}
    assert compiler.from_structural_tag(tag) is compiler.from_structural_tag(tag)
    kept = len(compiler)
    for _ in range(2):
        with pytest.raises(dotllm.InvalidSpecError):
            compiler.from_json_schema({"type": "strnig"})
    assert len(compiler) == kept and compiler.nbytes > 0
    compiler.clear()
    assert len(compiler) == 0 and compiler.nbytes == 0
    with pytest.warns(SpecWarning) as caught:
        compiler.from_json_schema({"type": "object", "requierd": []})
    assert caught[0].filename == __file__


def test_a_compiler_forgets_what_was_used_least_recently() -> None:
    size = Compiler(VOCABULARY).from_regex("a0").nbytes
    compiler = Compiler(VOCABULARY, cache_mb=3.5 * size / 2**20)
    first, guide = compiler.from_regex("a0"), compiler.from_regex("a1").guide()
    compiler.from_regex("a2")
    assert compiler.from_regex("a0") is first and len(compiler) == 3
    compiler.from_regex("a3")
    assert len(compiler) == 3 and compiler.from_regex("a0") is first
    assert guide.accept_string("a1") and compiler.nbytes <= 3.5 * size
    assert len(Compiler(VOCABULARY, cache_mb=0)._kept) == 0


def test_threads_that_ask_for_the_same_compile_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, calls = Compiler(VOCABULARY), []
    real, gate = Index.from_regex.__func__, threading.Barrier(8)  # type: ignore[attr-defined]

    def from_regex(cls: type[Index], pattern: str, vocabulary: Vocabulary, **options: Any) -> Index:
        calls.append(pattern)
        found: Index = real(cls, pattern, vocabulary, **options)
        return found

    monkeypatch.setattr(Index, "from_regex", classmethod(from_regex))
    found: list[Index] = []

    def ask() -> None:
        gate.wait()
        found.append(compiler.from_regex("(a|b){50}"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["(a|b){50}"] and len({*map(id, found)}) == 1 and len(found) == 8


def test_a_tokenizer_in_place_of_a_vocabulary() -> None:
    class Tokenizer:
        pass

    for make in (Index.from_json_schema, Index.from_grammar, Index.from_structural_tag):
        spec: Any = {Index.from_grammar: 'start: "a"'}.get(make, True)
        if make == Index.from_structural_tag:
            spec = {"format": {"type": "any_text"}}
        with pytest.raises(TypeError, match=r"not 'Tokenizer': make one with Vocabulary.from_tokenizer\(tokenizer\)"):
            make(spec, Tokenizer())  # type: ignore[operator]


@pytest.mark.parametrize("public", [Index, Compiler])
def test_each_public_name_is_in_the_documentation(public: type) -> None:
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    names = [name for name in dir(public) if not name.startswith("_")]
    described = public is Compiler and "::: dotllm.compilation.in_process.Compiler\n" in page
    missing = [name for name in names if not re.search(rf"\b{name}\b", page) and not described]
    assert missing == []
    assert all(getattr(public, name).__doc__ for name in names)


class _Point(TypedDict):
    x: int


@dataclasses.dataclass
class _Pair:
    a: int


class _Model(pydantic.BaseModel):
    a: int


class _Sky(Enum):
    SUN = "sun"
    RAIN = "rain"


@pytest.mark.parametrize("given", [int, _Point, _Pair, _Pair(1), list[_Model], list[_Model] | None, Literal["a"], _Sky])
def test_a_type_of_python_is_told_how_it_becomes_a_schema(given: Any) -> None:
    for make in (Index.from_json_schema, lambda it, vocabulary: Compiler(vocabulary).from_json_schema(it)):
        with pytest.raises(InvalidSpecError, match=r"of Python, not a JSON Schema; write pydantic\.TypeAdapter\(T\)"):
            make(given, byte_vocabulary())
    if not isinstance(given, _Pair):
        Index.from_json_schema(pydantic.TypeAdapter(given).json_schema(), byte_vocabulary())


@pytest.mark.parametrize("given", [_Sky, Literal["sun", "rain"], Literal[_Sky.SUN, _Sky.RAIN], ("sun", "rain")])
def test_choices_are_the_values_of_a_literal_or_an_enum(given: Any) -> None:
    for index in (Index.from_choice(given, byte_vocabulary()), Compiler(byte_vocabulary()).from_choice(given)):
        taken = {text for text in ("sun", "rain", "SUN", "su", "_Sky.SUN") if _is_text_of(index, text)}
        assert taken == {"sun", "rain"}
    with pytest.raises(InvalidSpecError, match="must be a string, not int"):
        Index.from_choice(Literal["a", 1], byte_vocabulary())


def _is_text_of(index: Index, text: str) -> bool:
    guide = index.guide()
    return guide.accept_string(text) and guide.can_finish


class _Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class _Dog(pydantic.BaseModel):
    kind: Literal["dog"]


def test_a_tagged_union_of_pydantic_warns_of_nothing() -> None:
    tagged = pydantic.TypeAdapter(Annotated[_Cat | _Dog, pydantic.Field(discriminator="kind")])
    assert "discriminator" in tagged.json_schema()
    more = {"type": "string", "xml": {"name": "a"}, "externalDocs": {"url": "b"}, "example": "c"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Index.from_json_schema(tagged, byte_vocabulary())
        Index.from_json_schema({**more, "type": "object", "properties": {"a": more}}, byte_vocabulary())


@pytest.mark.parametrize(
    ("grammar", "warned"),
    [
        ('start: "<r>" x "</r>" a\nx[lazy]: /(.|\\n)*/\na: "b"', True),
        ('start: "<r>" X "</r>"\nX[lazy]: /a*/', True),
        ('start: "<r>" x\nx[lazy]: /a?/ | "b"', True),
        ('start: "<r>" x "</r>"\nx[suffix="</r>"]: /(.|\\n)*/', False),
        ('start: "<r>" x\nx[lazy]: /(.|\\n)*<\\/r>/', False),
        ('start: "<r>" x "</r>"\nx: /(.|\\n)*/', False),
    ],
)
def test_a_lazy_terminal_that_is_always_empty_is_warned_of(grammar: str, warned: bool) -> None:
    from dotllm.compilation.spec_warnings import texts
    from dotllm.compilation.specification import Kind, Specification

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Index.from_grammar(grammar, VOCABULARY)
    assert [warning.category for warning in caught] == [SpecWarning] * warned
    said = texts(Specification.from_value(Kind.GRAMMAR, grammar))
    assert len(said) == warned and all("matches only the empty text" in one and "line " in one for one in said)
    assert all(warning.filename == __file__ for warning in caught)


_CYCLE: dict[str, Any] = {"type": "object", "properties": {}}
_CYCLE["properties"]["a"] = _CYCLE
_TAG = {"type": "structural_tag", "format": {"type": "any_text"}}


def _tag(content: Any) -> Any:
    return {"type": "structural_tag", "format": content}


def _nested(outer: dict[str, Any], inside: str, kind: str = "string", depth: int = 1_500) -> dict[str, Any]:
    value: dict[str, Any] = {"type": kind}
    for _ in range(depth):
        value = {**outer, inside: value}
    return value


REFUSED_PYTHON: list[tuple[str, Any, dict[str, Any], str]] = [
    ("choice", "abc", {}, "must be a list of strings, not str"),
    ("choice", {"a": 1}, {}, "must be a list of strings, not dict"),
    ("choice", {"a"}, {}, "must be a list of strings, not set"),
    ("choice", None, {}, "must be a list of strings, not NoneType"),
    ("json_schema", {1: 2}, {}, "the key 1 is not a string"),
    ("json_schema", {"type": "object", (1, 2): 3}, {}, r"the key \(1, 2\) is not a string"),
    ("json_schema", {"items": {None: 1}}, {}, r"the key None is not a string \(at /items\)"),
    ("json_schema", {"$defs": {"a": {1: 2}}, "type": "string"}, {}, r"not a string \(at /\$defs/a\)"),
    ("json_schema", {"anyOf": [{"type": "string", 1: 2}]}, {}, r"not a string \(at /anyOf/0\)"),
    ("json_schema", {"const": _CYCLE}, {}, "nested too deeply"),
    ("json_schema", {"properties": {"a": set()}}, {}, r"an object or a boolean \(at /properties/a\)$"),
    ("json_schema", {"enum": (1, 2)}, {}, r"write a list: \[1, 2\]"),
    ("json_schema", True, {"property_order": "sorted"}, "property_order must be one of .*, not 'sorted'"),
    ("structural_tag", _TAG, {"property_order": "sorted"}, "property_order must be one of .*, not 'sorted'"),
    ("json_schema", True, {"any_whitespace": "no"}, "any_whitespace must be one of .*, not 'no'"),
    ("structural_tag", _TAG, {"any_whitespace": 5}, "any_whitespace must be one of .*, not 5"),
    ("structural_tag", _TAG, {"whitespace_pattern": "x"}, "whitespace_pattern: 'x' .* is not JSON white space"),
    ("structural_tag", _TAG, {"source": " "}, "source must be non-blank text"),
    ("structural_tag", _tag({"type": "json_schema", "json_schema": {1: 2}}), {}, "1 is not a string .*/json_schema"),
    ("structural_tag", _tag(_nested({"type": "optional"}, "content", "any_text")), {}, "nested deeper than 64"),
]


@pytest.mark.parametrize(("kind", "value", "options", "message"), REFUSED_PYTHON)
def test_what_only_python_can_say_is_refused_by_both(
    kind: str, value: Any, options: dict[str, Any], message: str
) -> None:
    compiler = Compiler(VOCABULARY)
    with pytest.raises(dotllm.SpecError, match=message):
        getattr(Index, f"from_{kind}")(value, VOCABULARY, **options)
    with pytest.raises(dotllm.SpecError, match=message):
        getattr(compiler, f"from_{kind}")(value, **options)
    assert len(compiler) == 0


@pytest.mark.parametrize("schema", [_CYCLE, {"type": "string", "x-note": {(1, 2): 3}}, _nested({}, "items")])
def test_what_is_not_json_is_compiled_by_both_where_it_can_be(schema: Any) -> None:
    for index in (index_of(schema), Compiler(VOCABULARY).from_json_schema(schema)):
        assert index.guide().allowed_tokens()


@pytest.mark.parametrize("schema", [_CYCLE, {"type": "string", "x-note": {(1, 2): 3}}])
def test_what_is_not_json_can_be_part_of_a_tag(schema: Any) -> None:
    tag = _tag({"type": "sequence", "elements": [{"type": "json_schema", "json_schema": schema}] * 2})
    for index in (Index.from_structural_tag(tag, VOCABULARY), Compiler(VOCABULARY).from_structural_tag(tag)):
        assert index.guide().allowed_tokens()


def test_methods_and_properties_are_documented_as_what_they_are() -> None:
    """`docs/python.md` writes methods with parentheses, and properties without."""
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    seen = 0
    for of in (Index, Compiler, Guide, Vocabulary):
        rows = "\n".join(part.split("\n\n")[0] for part in page.split(f"| of `{of.__name__}` | |\n")[1:])
        for cell in re.findall(r"^\| (.+?) \|", rows, re.MULTILINE):
            for name, call in re.findall(r"`(\w+)(\([^`]*\))?`", cell):
                member = getattr(of, name, None)
                if call:
                    assert callable(member), f"{of.__name__}.{name} is not a method"
                    seen += 1
                elif member is not None and not name.startswith(("from_", "save", "load", "to_")):
                    assert not callable(member), f"{of.__name__}.{name} is a method"
    assert seen > 20


def test_the_documented_numbers_of_the_beginning_and_the_end() -> None:
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    ((beginning, end),) = re.findall(r"numbers of configurations: (\d+) is the beginning,\s(\d+) is the end", page)
    guide = Index.from_regex("a", VOCABULARY).guide()
    assert int(beginning) == guide.config
    assert guide.accept_string("a") and guide.advance(VOCABULARY.eos_token_ids[0]) and int(end) == guide.config
