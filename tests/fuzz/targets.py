"""The fuzzing targets: functions of a random number generator, which raise if something is wrong.

The judges are `re`, `jsonschema`, the recogniser of grammars (`tests.grammar.reference`), `tags.judge`, vLLM's
parsers, and brute force over a vocabulary. `peers` are also compared with them. A specification may be refused only
with a `SpecError`, a file only with a ValueError, and an argument only with a TypeError, ValueError or IndexError.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import tempfile
import time
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine import arena, layout
from dotllm.errors import BudgetExceededError, EngineFault, InvalidSpecError, Pointer, SpecError, TooFewTokensError
from dotllm.index import advance_guides, mask_rows
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading import meta_schema
from dotllm.languages.json_schema.reading.dialect import Dialect
from dotllm.languages.json_schema.reading.ineffective import ineffective_keywords, looks_like_schema
from dotllm.languages.json_schema.reading.subschemas import below
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.languages.json_schema.vanishing import vanishing
from tests.conftest import SHARED_DATA
from tests.fuzz import makers, peers, tags
from tests.fuzz.walks import reads, vocabulary, walk
from tests.languages.json_schema.random_schemas import random_schema
from tests.languages.json_schema.reading.meta_schemas import disagreement
from tests.languages.json_schema.reading.meta_schemas import spoilt as spoilt_schema
from tests.languages.json_schema.verdicts import byte_vocabulary

MASKBENCH = SHARED_DATA / "maskbench-open.jsonl.gz"
TARGETS: dict[str, Callable[[Random], None]] = {}
ANSWERS = int(os.environ.get("ANSWERS", "40"))
"""answers on one index"""
CALLERS_FAULT = (TypeError, ValueError, IndexError, OverflowError)


def target(function: Callable[[Random], None]) -> Callable[[Random], None]:
    TARGETS[function.__name__] = function
    return function


@target
def regexes(random: Random) -> None:
    """Against `re`: verdicts on walks and on texts similar to the pattern."""
    pattern = makers.regex(random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            other = re.compile(pattern, re.ASCII)
            judge: Any = regex.compile(pattern, regex.V0 | regex.ASCII)  # unlike `re`, it has a timeout
        except (re.error, regex.error, OverflowError, RecursionError, ValueError):
            judge = None
    try:
        index = Index.from_regex(pattern, vocabulary())
    except SpecError:
        return
    walks = [text.decode() for _ in range(3) if (text := walk(index, random)) is not None]
    if judge is None or any(sign in pattern for sign in ("--", "&&", "[[")):  # (docs/regex.md, "How we differ")
        return
    judged = {}
    for text in [*walks, *makers.texts(random, pattern)]:
        if (text.endswith("\n") and "$" in pattern) or (not text and r"\B" in pattern):
            continue
        if "(?i" in pattern and not text.isascii():  # `re` does not fold such characters under re.ASCII
            continue
        with contextlib.suppress(TimeoutError):
            judged[text] = expected = bool(judge.fullmatch(text, timeout=2.0))
            found = reads(index, text.encode())
            if found != expected:  # (`regex` is wrong if the body of a lazy loop may be empty)
                judged[text] = bool(other.fullmatch(text))
                assert found == judged[text], f"{pattern!r} and {text!r}"
    if random.random() < 0.1:
        peers.compare("regex", pattern, judged)


@target
def schemas(random: Random) -> None:
    """Against `jsonschema`: walks are valid, and invalid schemas are refused."""
    from benchmarks.walks import parse, validator
    from tests.languages.json_schema.test_walks import repeats_a_key

    schema = random_schema(random, random.choice([1, 2, 3]))
    if random.random() < 0.5:
        schema = makers.spoilt(random, schema, makers.SCHEMA_WORDS)
    text = json.dumps(schema)
    try:
        index = Index.from_json_schema(
            text if random.random() < 0.5 else schema, vocabulary(), property_order=random.choice(["any", "declared"])
        )
    except SpecError:
        return
    try:
        Draft202012Validator.check_schema(schema)
        judge = validator(schema)
    except (SchemaError, RecursionError):
        return
    for _ in range(3):
        found = walk(index, random)
        if found is None or repeats_a_key(found):
            continue
        if "uniqueItems" in text and re.search(
            rb"[eE][+-]?\d{3}", found
        ):  # `parse` reads all numbers beyond 1e400 as the same number
            continue
        try:
            valid = judge.is_valid(parse(found.decode())) or judge.is_valid(json.loads(found))  # 1e308: here a float
        except Exception:  # the judge's: an unknown reference, a pattern that `re` does not support
            return
        assert valid, f"{text} allows {found!r}"


def has_key_that_begins_with(document: Any, names: Sequence[str]) -> bool:
    """Whether an object in ``document`` has a key that is longer than one of ``names`` and begins with it."""
    if isinstance(document, list):
        return any(has_key_that_begins_with(item, names) for item in document)
    return isinstance(document, dict) and (
        any(key != name and key.startswith(name) for key in document for name in names)
        or has_key_that_begins_with([*document.values()], names)
    )


@target
def malformed(random: Random) -> None:
    """Against `jsonschema`'s check of the meta-schemas: real and random schemas with a value changed, in any dialect.
    A refusal names the place and, if null or quotes are at fault, what to write. Warnings and compiles raise nothing
    but refusals."""
    schema = random.choice(_real_schemas()) if random.random() < 0.7 else random_schema(random, 3)
    dialect = random.choice(list(Dialect))
    for _ in range(random.choice([1, 1, 2])):
        schema = spoilt_schema(random, schema, dialect)
    assert not (found := disagreement(schema, dialect)), f"{found}: {json.dumps(schema)}"
    try:
        meta_schema.check(schema, dialect)
    except InvalidSpecError as error:
        assert isinstance(error.location, Pointer) and error.keyword, error
        assert "None" not in str(error).replace("NoneType", "") or "None" in json.dumps(schema), error
        assert error.help or value_of(schema, error.location.path) is not None, error
    looks_like_schema(schema)
    [*ineffective_keywords(schema)]
    [*vanishing(schema, Options(additional_properties=random.choice(["closed", "open"])))]
    try:
        json_schema_to_grammar(schema)
    except SpecError as error:
        assert error.location is not None and len(error.help) < 250, error


def value_of(value: Any, path: str) -> Any:
    """The value at a JSON Pointer."""
    for token in path.split("/")[1:]:
        (value,) = below(value, token) or (...,)
    return value


@target
def numbers(random: Random) -> None:
    """Against Python's reader: each number allowed is finite, satisfies the schema, and is not too long."""
    ends: list[Any] = [0, 1, -1, 0.1, 0.5, 1e-7, 1e16, 2**53, 1e300, -1e308, 1e-310, 10**70, 5e-324, 0.3, 100]
    schema: dict[str, Any] = {"type": random.choice(["number", "number", "integer"])}
    for name in random.sample(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], random.randint(0, 2)):
        schema[name] = random.choice(ends)
    if random.random() < 0.3:
        schema["not"] = random.choice([{"const": 1}, {"enum": [0, 0.3]}, {"multipleOf": 1}, {"minimum": 5}])
    if random.random() < 0.15:
        schema["multipleOf"] = random.choice([0.01, 7, 1e-9, 2.5])
    try:
        index = Index.from_json_schema(schema, vocabulary())
    except SpecError:
        return
    exact = {"type", "multipleOf", *(["not"] if "multipleOf" in schema.get("not", ()) else [])}
    judge = Draft202012Validator({name: value for name, value in schema.items() if name not in exact})
    for _ in range(4):
        text = walk(index, random, 400)
        if text is None:
            continue
        value = json.loads(text)
        assert isinstance(value, int) or math.isfinite(value), (schema, text)
        assert len(text.lstrip(b"-")) <= 64 or any(abs(end) > 1e50 or 0 < abs(end) < 1e-50 for end in ends), text
        # Python compares 10**70 and 1e70 by the double's exact value, so either reading of an integral number may fit.
        precise = Fraction(text.decode())
        readings = [value] if precise.denominator > 1 else [value, int(precise), float(precise)]
        assert any(map(judge.is_valid, readings)), (schema, text)
        if "not" in exact:  # judged on the number as written, which need not be a double
            assert precise.denominator > 1, (schema, text)


@target
def strings(random: Random) -> None:
    """Walks under formats, alone and with other conditions: the format judges them, and `re` judges the pattern."""
    name = random.choice(sorted(formats.FORMATS))
    schema: dict[str, Any] = {"type": "string", "format": name}
    if random.random() < 0.3:
        schema["maxLength"] = random.randint(1, 40)
    if random.random() < 0.3:
        schema["minLength"] = random.randint(1, 5)
    if random.random() < 0.3:
        schema["pattern"] = random.choice(["^(?=.{1,40}$)", "^[^a]*$", "[0-9]", "^(?!.{33})", "^[a-zA-Z0-9]"])
    try:
        index = Index.from_json_schema(schema, vocabulary())
    except SpecError:
        return
    for _ in range(3):
        written = walk(index, random, 200)
        if written is None:
            continue
        text = json.loads(written)
        assert formats.FORMATS[name].accepts(text), (schema, text)
        assert schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1 << 30), (schema, text)
        pattern = schema.get("pattern", "").replace("$", r"\Z").replace(".", r"[^\n\r\u2028\u2029]")  # as in ECMA-262
        assert re.search(pattern, text), (schema, text)


@cache
def _real_schemas() -> list[Any]:
    with gzip.open(MASKBENCH, "rt") as lines:
        return [json.loads(line)["schema"] for line in lines if len(line) < 6_000]


def nesting(text: str) -> int:
    """A bound on how deeply a JSON text is nested."""
    steps = [(char in "[{") - (char in "]}") for char in text]
    return max(accumulate(steps), default=0)


@target
def documents(random: Random) -> None:
    """Against `jsonschema`: with keys in any order, the verdicts on documents similar to the schema. Closed objects
    compile if open ones do, and allow no document that open ones reject."""
    from benchmarks.walks import parse, validator
    from tests.languages.json_schema.random_schemas import KEYS, SCALARS, random_document, random_schema
    from tests.languages.json_schema.test_walks import repeats_a_key

    schema = random_schema(random, random.choice([1, 2, 3]))
    try:
        Draft202012Validator.check_schema(schema)
        index = Index.from_json_schema(schema, vocabulary(), property_order="any", additional_properties="open")
    except (SchemaError, SpecError):
        return
    closed = Index.from_json_schema(schema, vocabulary(), property_order=random.choice(["any", "declared"]))
    walks = [found for _ in range(3) if (found := walk(index, random)) is not None and not repeats_a_key(found)]
    made = [json.loads(found) for found in walks] + [random_document(random) for _ in range(6)]
    words = [*KEYS, *(one for one in SCALARS if isinstance(one, str))]
    made += [makers.spoilt(random, document, words) for document in made]
    judge, written = validator(schema), json.dumps(schema)
    judged = {}
    for document in made:
        text = json.dumps(document, ensure_ascii=False)
        if re.search(r"Infinity|-0\.0|\de[+-]|\ud800", text):  # not JSON, or not generated (docs/json-schema.md)
            continue
        try:
            judged[text] = judge.is_valid(parse(text))
            allowed = reads(index, text.encode())
        except RecursionError:
            return
        except BudgetExceededError as error:
            assert "nested more than 500 deep" in str(error) and nesting(text) > 500, str(error)
            return
        if judged[text] and "multipleOf" in written and re.search(r"\d{16}", text):
            continue  # under a negated multipleOf, numbers have fewer digits (docs/json-schema.md)
        if not (judged[text] and has_key_that_begins_with(document, KEYS)):  # see docs/json-schema.md
            assert allowed == judged[text], f"{json.dumps(schema)} and {text}"
        assert allowed >= reads(closed, text.encode()), f"closed, {json.dumps(schema)} and {text}"
    if random.random() < 0.1:
        peers.compare("json_schema", schema, judged)


@target
def grammars(random: Random) -> None:
    """Against peers and the recogniser (which uses our reader): verdicts on walks and spoilt walks."""
    from dotllm.languages.cfg import grammar_to_grammar
    from tests.grammar.reference import accepts

    text = makers.grammar(random)
    try:
        grammar = grammar_to_grammar(text)
        index = Index.from_grammar(text, vocabulary())
    except SpecError:
        return
    judged = {}
    for _ in range(3):
        found = walk(index, random, 40)
        if found is None or len(found) > 60:
            continue
        for one in (found, makers.spoilt_bytes(random, found)):
            expected = accepts(grammar, one)
            assert reads(index, one) == expected, f"{text}\nand {one!r}"
            with contextlib.suppress(UnicodeDecodeError):
                if "Cn" not in map(unicodedata.category, one.decode()):  # our \w: a later Unicode than the peers'
                    judged[one.decode()] = expected
    if judged and random.random() < 0.2:
        peers.compare_grammars(text, judged)


@target
def recursions(random: Random) -> None:
    """Masks of rules that may all end together, against the recogniser."""
    from dotllm.languages.lark.build import lark_to_grammar
    from tests.grammar.reference import Recogniser

    text = makers.recursion(random)
    tokens = [b"a", b"b", b",", b"ab", b"a,", b",a", b"bb", b"aab", b"b,,", b"a" * 5, b",,,,", b"abababab"]
    end = len(tokens)
    try:
        grammar = lark_to_grammar(text)
        index = Index.from_grammar_object(grammar, Vocabulary.from_bytes([*tokens, None], eos_token_ids=end))
    except SpecError:
        return
    guide, recogniser = index.guide(), Recogniser(grammar)
    began = time.process_time()
    for _ in range(30):
        allowed = [i for i, token in enumerate(tokens) if all(map(recogniser.copy().feed, token))]
        assert set(guide.allowed_tokens()) == {*allowed, *([end] if recogniser.can_finish else [])}, text
        if not allowed or time.process_time() - began > 2:  # (the recogniser is slow on ambiguous grammars)
            break
        token = random.choice(allowed)
        assert guide.advance(token), text
        assert all(map(recogniser.feed, tokens[token]))


@target
def terminals(random: Random) -> None:
    """``lazy`` and ``suffix`` under operators, against their definition; tools with free text, against llguidance."""
    from dotllm.languages.lark.build import lark_to_grammar
    from tests.grammar.reference import accepts
    from tests.languages.lark import test_lazy as lazy

    made = lazy.Terminals(random)
    for _ in range(4):
        made.add()
    text = "\n".join(["start: T3", *made.lines])
    try:
        grammar = lark_to_grammar(text)
    except BudgetExceededError:
        return
    for one in random.sample(lazy.UNIVERSE, 30):
        assert accepts(grammar, one.encode()) == (one in made.sets[3]), f"{text}\nand {one!r}"
    text = lazy.tool_grammar(random)
    grammar = lark_to_grammar(text)
    for _ in range(30):
        one = "".join(random.choices(["a", "<", "1", ">", "<1>", "<a1>", "a<1>"], k=random.randint(0, 6)))
        assert accepts(grammar, one.encode()) == lazy.peer(text, one), f"{text}\nand {one!r}"


@target
def structural_tags(random: Random) -> None:
    """Walks and spoilt walks, against a judge that tries every place where a part can end."""
    tag = makers.structural_tag(random)
    if random.random() < 0.4:
        tag = makers.spoilt(random, tag, makers.TAG_WORDS)
    try:
        index = Index.from_structural_tag(tag if random.random() < 0.5 else json.dumps(tag), vocabulary())
    except SpecError:
        return
    marks = json.dumps(tag, ensure_ascii=False)
    for _ in range(3):
        found = tags.walk(index, random, marks)
        try:
            for text in [] if found is None else [found, tags.spoilt(random, found, marks)]:
                if "\ud800" in text:  # a lone surrogate is not text
                    continue
                expected = tags.judge(tag, text)
                if expected and text != found and "json_schema" in marks and re.search(r"[{\[\\]|\d[.eE]", text):
                    continue  # some spellings of JSON are never generated (docs/json-schema.md)
                assert tags.reads(index, text) == expected, f"{json.dumps(tag)} and {text!r}"
        except tags.Unknown:
            pass


@target
def limits(random: Random) -> None:
    """Under a limit, step by step: a mask holds precisely the tokens after which the text can end in time. (Guides that
    remember items may lack some.)"""

    of = random.choice([vocabulary(), byte_vocabulary()])
    makes: list[Callable[[], Index]] = [
        lambda: Index.from_regex(makers.regex(random), of),
        lambda: Index.from_json_schema(makers.bounded_string(random), of),
        lambda: Index.from_json_schema(
            random_schema(random, random.choice([1, 2, 3])), of, property_order=random.choice(["any", "declared"])
        ),
        lambda: Index.from_grammar(makers.grammar(random), of),
        lambda: Index.from_structural_tag(makers.structural_tag(random), of),
    ]
    try:
        index = random.choice(makes)()
        guide = index.guide()
        least = guide.tokens_to_finish
    except SpecError:
        return
    for more in (0, 1, 3):
        guide = index.guide()
        for left in range(least + more, max(0, least + more - 25), -1):
            ordinary = list(guide.allowed_tokens())
            mask = guide.mask_within(left)
            allowed = ordinary if mask is None else np.flatnonzero(bits(mask)).tolist()
            fitting = [token for token in ordinary if needed_behind(guide, token) < left]
            assert set(allowed) <= set(fitting) and allowed, (left, allowed, fitting)
            assert allowed == fitting or guide.is_stateful, (left, allowed, fitting)
            assert guide.advance(random.choice(allowed))
            if guide.is_finished:
                break
    with pytest.raises(TooFewTokensError):
        index.guide().mask_within(least - 1)


@target
def sizes(random: Random) -> None:
    """Numbers up to 10**30 wherever a specification takes one: it is refused or walked, to the end if that is near."""
    from benchmarks.walks import parse, validator

    pattern, schema = makers.sized_regex(random), makers.sized(random)
    of_regex = random.random() < 0.3
    of = random.choice([vocabulary(), byte_vocabulary()])
    try:
        order = random.choice(["any", "declared"])
        index = Index.from_regex(pattern, of) if of_regex else Index.from_json_schema(schema, of, property_order=order)
        guide, taken = index.guide(), []
        for _ in range(random.randint(0, 8)):
            taken.append(random.choice(list(guide.allowed_tokens())))
            assert guide.advance(taken[-1]), (pattern, schema)
            if guide.is_finished:
                break
        left = guide.tokens_to_finish
    except SpecError:
        return
    while 0 < left < 300:
        try:
            mask = guide.mask_within(left)
            allowed = list(guide.allowed_tokens()) if mask is None else np.flatnonzero(bits(mask)).tolist()
        except BudgetExceededError:  # a step that would take too long ends its request with a named error
            return
        taken.append(random.choice(allowed))
        assert guide.advance(taken[-1]), (pattern, schema)
        left -= 1
        if guide.is_finished:
            break
    if guide.is_finished:
        text = b"".join(of.token_bytes(token) or b"" for token in taken).decode()
        if not of_regex:
            assert validator(schema).is_valid(parse(text)), (schema, text)
        elif not re.search(r"\d{4}", pattern):  # (with longer numbers, `regex` would use up the memory)
            with contextlib.suppress(TimeoutError):
                assert regex.fullmatch(pattern, text, regex.V0 | regex.ASCII, timeout=2.0), (pattern, text)
    else:
        assert left > 0, (pattern, schema)


@target
def long_lived_indexes(random: Random) -> None:
    """Many answers on one index, several at a time: the masks equal those of a fresh index, and memory is bounded."""
    from tests.languages.json_schema.random_schemas import random_schema

    schema = random.choice([makers.growing, makers.growing, lambda r: random_schema(r, 2)])(random)
    long_lived(random, schema, random.choice(["any", "declared"]), ANSWERS)


def long_lived(random: Random, schema: Any, order: str, answers: int) -> int:
    """Run ``answers`` answers; returns how often a guide moved to another index."""
    try:
        index = Index.from_json_schema(schema, vocabulary(), property_order=order)
        twins = Index.from_json_schema(schema, vocabulary(), property_order=order)
    except SpecError:
        return 0
    limit = arena.used(index.mem) + random.randint(40_000, 100_000)  # full after a few answers
    index.mem[layout.H_LIMIT] = limit
    moves, end = 0, vocabulary().eos_token_ids[0]
    running: list[tuple[Guide, Guide]] = []
    while answers > 0 or running:
        while answers > 0 and len(running) < 3:
            running.append((index.guide(), twins.guide()))
            answers -= 1
        if arena.used(twins.mem) > 4_000_000 and all(guide.tokens_taken == 0 for guide, _ in running):
            twins = twins.renewed()
            running = [(guide, twins.guide()) for guide, _ in running]
        pair = random.choice(running)
        guide, twin = pair
        stood = guide.index
        try:
            taken = step_of_both(random, guide, twin, end)
        except BudgetExceededError:  # this answer alone needs more
            assert guide._own is not None, "others have ended it"
            taken = False
        moves += guide.index is not stood
        if not taken or guide.is_finished or guide.tokens_taken > 120:
            running.remove(pair)
        pair = guide = twin = stood = None  # type: ignore[assignment]  # (they hold indexes)
        held = sum(generation.nbytes for generation in index.generations)
        assert held <= 4 * limit * (2 + 3 * len(running) + 3), f"{held:,} bytes"
    return moves


def step_of_both(random: Random, guide: Guide, twin: Guide, end: int) -> bool:
    """Move two guides of the same automaton, which must agree, by one token; False if the answer has ended."""
    rows, failures = mask_rows([guide])
    if failures:
        raise failures.pop(0)  # (a reference cycle with this frame would keep its guides alive)
    if random.random() < 0.1 and guide.tokens_taken:
        count = random.randint(1, min(9, guide.tokens_taken))
        guide.rollback(count)
        twin.rollback(count)
        rows = np.array([guide.mask_row])
    mask = guide.index.masks[rows[0]].copy()
    assert np.array_equal(mask, twin.index.masks[twin.mask_row]), f"after {guide.tokens_taken} tokens"
    allowed = np.flatnonzero(bits(mask)).tolist()
    token = random.choice([one for one in allowed if one != end] or allowed)
    if end in allowed and random.random() < 0.05:
        token = end
    accepted, failures = advance_guides([guide], [token])
    if failures:
        raise failures.pop(0)  # (a reference cycle with this frame would keep its guides alive)
    assert accepted[0] and twin.advance(token)
    return token != end


def bits(mask: Any) -> Any:
    return np.unpackbits(mask.view(np.uint8), bitorder="little")


def needed_behind(guide: Guide, token: int) -> int:
    """How many tokens suffice after ``token``."""
    assert guide.advance(token)
    needed = guide.tokens_to_finish
    guide.rollback(1)
    return needed


@target
def files(random: Random) -> None:
    """Damaged index files, some with correct checksums, and damaged entries of the disk cache."""
    from dotllm.automata.machine.layout import H_LIMIT
    from dotllm.compilation.disk import DiskCache, seal
    from dotllm.compilation.metrics import Metrics
    from tests.index import walk_damaged

    of, saved = saved_indexes()
    data = random.choice(saved)
    raw = random.random() < 0.4
    damaged = makers.spoilt_bytes(random, data) if raw else walk_damaged.damage(data, random)
    try:
        index = Index.from_bytes(damaged, of)
    except ValueError:
        pass
    else:
        index.mem[H_LIMIT] = walk_damaged.MOST_INTS
        with contextlib.suppress(SpecError, EngineFault):
            walk_damaged.walk(index, random)
    with tempfile.TemporaryDirectory() as folder:
        secret = random.choice([b"", b"s"])
        cache_ = DiskCache(Path(folder), 1 << 24, secret=secret, metrics=Metrics())
        key = f"{1:064x}"
        path = cache_.put(key, seal(b"entry" * 20, key, secret))
        assert path is not None
        whole = path.read_bytes()
        spoilt = makers.spoilt_bytes(random, whole)
        path.write_bytes(spoilt)
        assert (cache_.read(key) is not None) == (spoilt == whole)


@cache
def saved_indexes() -> tuple[Vocabulary, list[bytes]]:
    from dotllm.index import index as index_module
    from tests.index import walk_damaged

    index_module.FUEL = 1 << 16
    of = walk_damaged.vocabulary()
    out = []
    for index in walk_damaged.indexes(of):
        for seed in range(4):
            walk_damaged.walk(index, Random(seed))
        out.append(index.to_bytes())
    return of, out


@target
def arrays(random: Random) -> None:
    """Arguments of the public API: arrays of all kinds, values that are not numbers, guides of several indexes."""
    from dotllm import numpy as dotllm_numpy
    from dotllm.index import advance_guides, fill_masks, mask_rows
    from dotllm.index.draft_rows import advance_along, allowed_drafts, mask_rows_along

    made = guides(random)
    bitmask, odd = makers.array(random, vocabulary().words), makers.odd
    calls: list[Callable[[], Any]] = [
        lambda: random.choice(made).write_mask(bitmask, odd(random)),
        lambda: random.choice(made).write_mask(bitmask, 0, odd(random)),
        lambda: dotllm_numpy.fill_next_token_bitmask(random.choice(made), bitmask, odd(random)),
        lambda: dotllm_numpy.fill_next_token_bitmask_par([(guide, odd(random)) for guide in made], bitmask),
        lambda: dotllm_numpy.apply_token_bitmask_inplace(makers.array(random, vocabulary().size), bitmask),
        lambda: dotllm_numpy.apply_token_bitmask_inplace(np.zeros(random.choice([(2, 300), 271]), "f4"), bitmask),
        lambda: fill_masks(made, bitmask, [odd(random) for _ in made], random.choice([1, 2])),
        lambda: fill_masks(made, bitmask),
        lambda: advance_guides(made, [odd(random) for _ in range(random.choice([len(made), 2]))]),
        lambda: mask_rows(made, random.choice([1, 2])),
        lambda: mask_rows_along(made, [[odd(random) for _ in range(random.randint(0, 3))] for _ in made]),
        lambda: allowed_drafts(made, [[odd(random) for _ in range(random.randint(0, 3))] for _ in made]),
        lambda: advance_along(made, [[odd(random) for _ in range(random.randint(1, 3))] for _ in made]),
        lambda: random.choice(made).advance(odd(random)),
        lambda: random.choice(made).rollback(odd(random)),
        lambda: random.choice(made).accepts([odd(random), odd(random)]),
        lambda: random.choice(made).index.advance_bytes(odd(random), b"ab"),
        lambda: random.choice(made).index.forced_bytes(odd(random), odd(random)),
        lambda: random.choice(made).index.mask_within(odd(random), odd(random)),
    ]
    for _ in range(6):
        guard = np.full((8, vocabulary().words), 7, np.int32)
        with contextlib.suppress(*CALLERS_FAULT, SpecError), np.errstate(all="ignore"):
            random.choice(calls)()
        assert (guard == 7).all()
    for guide in made:  # the guides still work
        mask = np.zeros((1, vocabulary().words), np.int32)
        with contextlib.suppress(SpecError):
            guide.write_mask(mask)
            assert mask.any()


@cache
def shared_indexes() -> list[Index]:
    return [
        Index.from_regex("[a-z]{1,9}(true|12)?", vocabulary()),
        Index.from_json_schema({"type": "array", "items": {"enum": [1, 2, 12]}, "uniqueItems": True}, vocabulary()),
        Index.from_grammar('start: "a" start "b" | "12"', vocabulary()),
    ]


def guides(random: Random) -> list[Guide]:
    out = []
    for _ in range(random.randint(1, 5)):
        guide = random.choice(shared_indexes()).guide()
        for _ in range(random.randint(0, 5)):
            guide.advance(random.choice(list(guide.allowed_tokens())))
        out.append(guide)
    return out


@target
def vocabularies(random: Random) -> None:
    """Tokens of all kinds: masks, against brute force over the bytes of each token."""
    tokens = makers.tokens(random)
    try:
        own = Vocabulary.from_bytes(
            tokens, eos_token_ids=[len(tokens) - 1], size=len(tokens) + random.choice([0, 0, 40])
        )
        index = Index.from_regex(random.choice(["(ab|a|é)*", "[^a]{0,3}", '"[^"]*"', ".*"]), own)
        guide = index.guide()
        for _ in range(4):
            allowed = set(guide.allowed_tokens())
            expected = {
                token for token, data in enumerate(tokens)
                if data and token != len(tokens) - 1 and index.advance_bytes(guide.config, data) >= 0
            } | ({len(tokens) - 1} if guide.can_finish else set())  # fmt: skip
            assert allowed == expected, (tokens, allowed ^ expected)
            others = sorted(allowed - {len(tokens) - 1})
            if not others or not guide.advance(random.choice(others)):
                break
    except (SpecError, BudgetExceededError, ValueError):
        return


@target
def bodies(random: Random) -> None:
    """A front end's work before it asks the engine: no HTTP 500 but vLLM's, no constraint dropped (except tools')."""
    from tests.fuzz import requests

    kind, body = makers.body(random)
    found = requests.ask(kind, body)
    if found.error is not None and requests.ask_vllm(kind, body).error is None:
        raise AssertionError(f"{kind}: {json.dumps(body)[:2000]}") from found.error
    assert not (found.is_free and requests.asks(kind, body)), f"free: {kind}: {json.dumps(body)[:2000]}"


@target
def foreign_fields(random: Random) -> None:
    """A schema or a grammar in any field that an API does not read is refused; other unknown fields pass."""
    from tests.fuzz import requests

    kind, fields, is_constraint = makers.foreign_fields(random)
    found = requests.ask(kind, fields)
    said = json.dumps(fields)[:2000]
    assert found.error is None, said
    if is_constraint:
        assert found.code == "unknown_field" and ": use " in (found.refusal or ""), f"{kind}: {found}: {said}"
    else:
        assert found == requests.Outcome(is_free=True), f"{kind}: {found}: {said}"


@target
def tool_calls(random: Random) -> None:
    """Against `jsonschema`: vLLM's parsers read valid arguments from every call that a mask allows, also in streams."""
    from benchmarks.walks import parse, validator
    from tests.fuzz import tool_calls

    schema = tool_calls.parameters(random)
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return
    for call in tool_calls.calls(random, schema):
        said = f"{call.parser}: {json.dumps(call.schema)}\nand {call.text!r}\nread as {call.at_once}"
        whole = json.loads(call.at_once)
        if call.written:
            assert whole == json.loads(call.written), said
        if re.search(r"(?<![\w.])-?\d+(\d{15}|\.\d{15}|[\d.]*[eE])", call.text):  # a double (docs/structural-tags.md)
            continue
        try:
            valid = validator(call.schema).is_valid(parse(call.at_once))
        except (RecursionError, OverflowError):  # the judge's
            continue
        if not valid and re.search(r'"(oneOf|not|if)"', json.dumps(call.schema)) and re.search(r': ?"', call.at_once):
            continue  # these may exclude strings, which is not enforced (docs/structural-tags.md)
        assert valid, said
        for how, streamed in call.streamed.items():
            assert json.loads(streamed) == whole, f"{said}\n{how} {streamed}"
