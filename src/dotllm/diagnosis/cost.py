"""Predicts the least cost of an answer, whether and where it can grow without bound, and what may hurt its quality.

The shortest answer, and whether there is a longest one, follow from the automaton. The places where answers grow are
read from the schema, and named as its reader knows them. Advice is about the quality of answers, not about what is
enforced (docs/answer-quality.md).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dotllm.automata.kinds import NodeKind
from dotllm.automata.machine import layout
from dotllm.automata.machine.plans import bytes_from
from dotllm.errors import SpecError, escaped, page
from dotllm.index import GrammarIndex
from dotllm.index.limits import trie_of
from dotllm.languages.json_schema.reading.subschemas import reached

_DEEPEST = 200
_TYPES = ("string", "array", "object", "number")
_GROWS = re.compile(r"(?<!\\)(?:[*+]|\{\d+,\})")
_REASONING = re.compile(r"reason|rationale|thought|thinking|explanation|analysis|chain_of|justification|steps", re.I)
_ANSWER = re.compile(r"^(final_?)?(answer|result|label|verdict|decision|conclusion|score|class|category)$", re.I)


class Shortest(NamedTuple):
    """The shortest answer, in tokens of the index's vocabulary (the end token included) and in bytes; None: unknown."""

    tokens: int | None
    bytes: int | None


class Growth(NamedTuple):
    """A place of a schema where answers grow without bound."""

    pointer: str
    reason: str


class Advice(NamedTuple):
    """A part of a schema that hurts answers, its place, and the page about it."""

    pointer: str
    message: str
    page: str


def shortest(index: GrammarIndex) -> Shortest:
    """The shortest answer that ``index`` allows."""
    config = index.guide().config
    try:
        tokens = index.tokens_to_finish(config)
        with index.lock:
            trie = trie_of(index.space)
            return Shortest(tokens, index.run(lambda mem: int(bytes_from(mem, trie, config))))
    except SpecError:  # too long to be planned, or no tokens of the vocabulary spell it
        return Shortest(None, None)


def is_unbounded(index: GrammarIndex) -> bool:
    """Whether there is no longest answer: the automaton has a cycle (of a loop, or of rules) that a text can take."""
    mem = index.mem

    def array(slot: int, length: int) -> list[int]:
        start: list[int] = mem[mem[slot] : mem[slot] + length].tolist()
        return start

    nodes = int(mem[layout.H_NODES])
    kind, a, b = (array(slot, nodes) for slot in (layout.H_KIND, layout.H_A, layout.H_B))
    edge_start, closure_start = array(layout.H_EDGE_START, nodes + 1), array(layout.H_CLOSURE_START, nodes + 1)
    edge_target, closure = array(layout.H_EDGE_TARGET, edge_start[-1]), array(layout.H_CLOSURE, closure_start[-1])
    loops = int(mem[layout.H_LOOP_AFTER] - mem[layout.H_LOOP_BODY])
    body, after, low, high = (
        array(slot, loops) for slot in (layout.H_LOOP_BODY, layout.H_LOOP_AFTER, layout.H_LOOP_MIN, layout.H_LOOP_MAX)
    )

    def targets(node: int) -> Sequence[int]:
        what, x, y = kind[node], a[node], b[node]
        if what == NodeKind.BYTE:
            return edge_target[edge_start[node] : edge_start[node + 1]]
        if what == NodeKind.CALL:
            return (x, y)
        if what == NodeKind.TOKENS:
            return (y,)
        if what == NodeKind.ENTER and low[x] < 0:
            return (*range(y, y + b[y] + 1), after[x])
        if what == NodeKind.ENTER:
            return (*range(y, y - 2 - high[x]), body[x], after[x]) if high[x] < -1 else (body[x], after[x])
        if what == NodeKind.END and low[x] >= 0:
            if high[x] < -1:  # an unordered sequence, whose last parts may repeat
                return tuple(range(y + (low[x] >> 15), y - 2 - high[x])) if y > 0 else (body[x],)
            return (body[x],) if high[x] == -1 else ()
        return ()

    open_nodes, done = set[int](), set[int]()
    stack: list[tuple[int, Iterator[int]]] = []

    def visit(node: int) -> None:
        open_nodes.add(node)
        following = (closure[closure_start[t] : closure_start[t + 1]] for t in targets(node))
        stack.append((node, itertools.chain.from_iterable(following)))

    for root in closure[closure_start[int(mem[layout.H_START])] : closure_start[int(mem[layout.H_START]) + 1]]:
        if root not in done:
            visit(root)
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if other in open_nodes:
                    return True
                if other not in done:
                    visit(other)
                    break
            else:
                stack.pop()
                open_nodes.discard(node)
                done.add(node)
    return False


def growth(schema: Any, options: Mapping[str, Any] | None = None) -> Iterator[Growth]:
    """The places, each once, where ``schema`` shows that answers, written with ``options``, grow without bound."""
    options = options or {}
    any_digits = options.get("number_digits") == "any"
    for pointer, part in _parts(schema, schema, "", ("#",), {"#"}):
        if part is None or part is True:
            yield Growth(pointer, "any value" if part else "refers to itself")
        if not isinstance(part, Mapping) or "const" in part or "enum" in part or "$ref" in part:
            continue
        types = part.get("type", _TYPES if not part.keys() & {"anyOf", "oneOf", "allOf", "not", "if"} else ())
        for name in (types,) if isinstance(types, str) else types:
            reason = _grows(name, part, options) or (_digits_grow(name, part) if any_digits else "")
            if reason:
                yield Growth(pointer, reason)


def _grows(name: str, part: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    if name == "string" and "maxLength" not in part and "format" not in part:
        pattern = str(part.get("pattern", ""))
        if not (pattern.startswith("^") and pattern.endswith("$")) or _GROWS.search(pattern):
            return "a string without maxLength"
    if name == "array" and "maxItems" not in part and part.get("items", True) is not False:
        return "an array without maxItems"
    if name == "object" and "maxProperties" not in part and _is_open(part, options):
        return "an object that takes further properties"
    return ""


def _digits_grow(name: str, part: Mapping[str, Any]) -> str:
    low, high = ({f"{side}imum", f"exclusive{side.capitalize()}imum"} & part.keys() for side in ("min", "max"))
    is_bounded = name == "integer" and low and high
    return "a number of any length" if name in ("number", "integer") and not is_bounded else ""


def _is_open(part: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether an object takes properties that are not listed (see `objects.closed`)."""
    if "additionalProperties" in part:
        return part["additionalProperties"] is not False
    option = options.get("additional_properties", "closed")
    return option == "open" or not ("properties" in part or (option is False and "patternProperties" in part))


def advice(schema: Any, options: Mapping[str, Any]) -> Iterator[Advice]:
    """Advice on parts of ``schema``, written with ``options``, that are known to hurt answers, in its order."""
    is_compact = options.get("any_whitespace") is False or options.get("whitespace_pattern") == ""
    for pointer, part in _parts(schema, schema, "", ("#",), {"#"}):
        if not isinstance(part, Mapping):
            continue
        properties = part.get("properties")
        is_object = isinstance(properties, Mapping) or part.get("type") == "object"
        if is_compact and is_object and _is_open(part, options):
            message = "compact output and an object that takes further properties: answers escape into made-up keys"
            yield Advice(pointer, message, page("answer-quality", "compact-output-and-open-objects"))
        if isinstance(properties, Mapping) and options.get("order", "declared") == "declared":
            yield from _late_reasoning(pointer, [*properties])
        yield from prefixes(f"{pointer}/enum", part.get("enum"))


def _late_reasoning(pointer: str, names: list[str]) -> Iterator[Advice]:
    answer = next((name for name in names if _ANSWER.search(name)), None)
    if answer is not None:
        for name in names[names.index(answer) + 1 :]:
            if _REASONING.search(name):
                message = f"{name!r} comes after {answer!r}, which is written before it has been reasoned about"
                place = f"{pointer}/properties/{escaped(name)}"
                yield Advice(place, message, page("answer-quality", "reasoning-first"))
                return


def prefixes(pointer: str, members: Any) -> Iterator[Advice]:
    """Advice on members of an enum, or choices, if one is the beginning of another; at most one piece."""
    listed = members if isinstance(members, list) else []  # else the compiler refuses it
    texts = sorted({member for member in listed if isinstance(member, str) and member})
    for text, other in itertools.pairwise(texts):
        if other.startswith(text):
            message = f"{text!r} is the beginning of {other!r}: a single token decides which is meant"
            yield Advice(pointer, message, page("answer-quality", "members-that-begin-others"))
            return


def _parts(
    root: Any, part: Any, pointer: str, above: tuple[str, ...], seen: set[str], depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Walk a schema and its sub-schemas, each referenced schema once, no deeper than `_DEEPEST`.

    Yields:
        (JSON Pointer, sub-schema); (JSON Pointer, None) for a reference to a schema that encloses it.
    """
    yield pointer, part
    if not isinstance(part, Mapping) or depth > _DEEPEST:
        return
    reference = part.get("$ref")
    if isinstance(reference, str):
        if reference in above:
            yield pointer, None
        elif reference.startswith("#") and reference not in seen:
            seen.add(reference)
            for target in reached(root, reference[1:]) or ():
                yield from _parts(root, target, reference[1:], (*above, reference), seen, depth + 1)
        return
    for name in ("items", "additionalProperties", "then", "else"):
        if isinstance(part.get(name), Mapping):
            yield from _parts(root, part[name], f"{pointer}/{name}", above, seen, depth + 1)
    for name in ("properties", "patternProperties"):
        if isinstance(part.get(name), Mapping):
            for key, value in part[name].items():
                yield from _parts(root, value, f"{pointer}/{name}/{escaped(key)}", above, seen, depth + 1)
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(part.get(name), list):
            for i, value in enumerate(part[name]):
                yield from _parts(root, value, f"{pointer}/{name}/{i}", above, seen, depth + 1)
