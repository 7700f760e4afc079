"""Finds the optional parts of a schema that nothing satisfies: properties that no document has, branches never taken.

A schema that nothing satisfies is refused. An optional property with such a schema vanishes from every document, as the
standard says; this module tells the author. ``false`` and ``{"not": …}`` count as deliberate. The parts are judged
as the compiler judges the whole schema: they are emitted into one grammar, under its budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dotllm import cancellation
from dotllm.errors import Pointer, SpecError
from dotllm.grammar.analysis import analyse
from dotllm.grammar.grammar import Grammar
from dotllm.languages.json_input import stack_limit
from dotllm.languages.json_schema.algebra.normal_form import FALSE, Node
from dotllm.languages.json_schema.build import read_schema
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.emission.prelude import from_prelude
from dotllm.languages.json_schema.guidance_options import guided
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, IN_PLACE, REFERENCES, Dialect
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.ineffective import Ineffective
from dotllm.languages.json_schema.reading.subschemas import ANNOTATIONS, children, equal_branches, pointer
from dotllm.languages.json_schema.unsatisfiable import why_nothing_satisfies

_MOST_BRANCHES = 16  # of a oneOf: each is compared with all others
_MOST_NAMES = 32  # of an object: each is tested against everything that must hold of the object
_ASKED_ABOUT = frozenset({"not", "if"})


class _Part(NamedTuple):
    """A part to test: its node, its place, the schema and scope that explain it, and what to say if it is empty."""

    node: Node
    place: Pointer
    schema: Any
    scope: Scope
    message: str


def vanishing(schema: Any, options: Options) -> Iterator[Ineffective]:
    """The optional parts of ``schema`` that nothing satisfies, in the order of the text; none if it is refused."""
    try:
        with stack_limit("the schema"):
            options = guided(options, schema)
            empty = _empty_parts(schema, options)
            if empty is None and options.additional_properties == "closed":  # `closed_or_open` compiles it
                empty = _empty_parts(schema, options._replace(additional_properties="open"))
    except SpecError:  # the compiler refuses it
        return
    yield from empty or ()


def _empty_parts(schema: Any, options: Options) -> list[Ineffective] | None:
    """The findings; None if nothing satisfies the whole schema."""
    keywords, root = read_schema(schema, options)
    grammar = Grammar()
    emitter = Emitter(from_prelude(grammar, options), keywords, options)
    whole = emitter.expression(root)
    parts = [*_parts(emitter, schema)]
    expressions = [emitter.expression(part.node) for part in parts]
    derives = analyse(grammar).derives
    if not derives[whole]:
        return None
    out = []
    for part, expression in zip(parts, expressions, strict=True):
        if not derives[expression]:
            reason = why_nothing_satisfies(emitter, part.schema, part.scope, part.place)
            out.append(Ineffective(part.place.path, part.message + (f": {reason}" if reason else "")))
    return out


def _parts(emitter: Emitter, root: Any) -> Iterator[_Part]:
    document, node = emitter.keywords.document, emitter.keywords.node
    pending: list[tuple[Any, Scope, Pointer]] = [(root, document.scope, Pointer())]
    seen: set[int] = set()
    while pending:
        cancellation.check()
        schema, scope, place = pending.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        scope = document.enter(schema, scope)
        known = ASSERTIONS[scope.dialect]
        if "$ref" in schema and scope.dialect < Dialect.DRAFT2019:  # keywords next to it are ignored
            schema = {"$ref": schema["$ref"]}
        inner = [
            (child, tokens[0], Pointer(place.path + pointer(tokens)), tokens[-1])
            for child, tokens in children(schema)
            if tokens[0] in known and isinstance(child, (dict, bool))
        ]
        for child, keyword, where, name in inner:
            if keyword == "properties" and not _is_on_purpose(child):
                message = f"no document has {name!r}, as nothing satisfies its schema"
                yield _Part(node(child, scope), where, child, scope, message)
            elif keyword in ("anyOf", "oneOf") and not _is_on_purpose(child):
                message = f"no document takes this branch of {keyword}, as nothing satisfies it"
                yield _Part(node(child, scope), where, child, scope, message)
        yield from _never_alone(emitter, schema, scope, place)
        yield from _forbidden(emitter, schema, scope, place)
        for keyword in REFERENCES:
            if keyword in schema and keyword in known:
                target, there = document.follow(keyword, schema[keyword], scope)
                pending.append((target, there, document.pointer(target)))
        pending += reversed(
            [(child, scope, where) for child, keyword, where, _ in inner if keyword not in _ASKED_ABOUT]
        )


def _is_on_purpose(schema: Any) -> bool:
    """Whether a schema allows nothing on purpose: it is false, or ``not`` is its only keyword but annotations."""
    return schema is False or (isinstance(schema, dict) and schema.keys() - ANNOTATIONS == {"not"})


def _never_alone(emitter: Emitter, schema: dict[str, Any], scope: Scope, place: Pointer) -> Iterator[_Part]:
    """The branches of ``oneOf``, each without the values that fit another branch, too."""
    branches = schema.get("oneOf", ())
    if not 1 < len(branches) <= _MOST_BRANCHES or equal_branches(branches) is not None:
        return
    keywords, algebra = emitter.keywords, emitter.algebra
    stated = keywords.document.stating(scope)
    nodes = [keywords.node(branch, stated) for branch in branches]
    for at, branch in enumerate(branches):
        own = keywords.node(branch, scope)
        if own == FALSE or _is_on_purpose(branch):
            continue
        alone = algebra.all_of([own, *(algebra.complement(node) for other, node in enumerate(nodes) if other != at)])
        message = (
            "no document takes this branch of oneOf, because every value that fits it also fits another branch; "
            "write anyOf"
        )
        yield _Part(alone, place / "oneOf" / at, True, scope, message)


def _forbidden(emitter: Emitter, schema: dict[str, Any], scope: Scope, place: Pointer) -> Iterator[_Part]:
    """The declared properties, each in an object for which all of ``schema`` holds: another keyword may forbid it."""
    declared = schema.get("properties", {})
    if IN_PLACE.isdisjoint(schema) or not declared or len(declared) > _MOST_NAMES:
        return
    keywords, algebra = emitter.keywords, emitter.algebra
    whole = keywords.node(schema, scope)
    for name, child in declared.items():
        if _is_on_purpose(child) or keywords.node(child, scope) == FALSE:
            continue
        message = f"no document has {name!r}, because other keywords of the object forbid it"
        yield _Part(algebra.both(keywords.present(name), whole), place / "properties" / name, True, scope, message)
