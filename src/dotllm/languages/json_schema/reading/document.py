"""A schema document: where its sub-schemas are, what ``$ref`` leads to, and how errors name a place in it.

Pointer references into the same document (nearly all references) are followed right here, touching nothing else, so a
1 MiB document costs only what is reachable from its root. Everything else (``$anchor``, ``$id``, relative and bundled
references, ``$dynamicRef``) goes through a registry of the `referencing` library, made on first use. Nothing is fetched
over the network: a reference to a document that is not there is refused by name. The meta-schemas of the drafts are
known if the package ``jsonschema-specifications`` is installed.

JSON Schema Core 2020-12 §8.2 (identifiers, references, dynamic scope), RFC 6901 (JSON Pointer), RFC 3986 §5.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from referencing import Registry, Specification
from referencing.exceptions import NoSuchAnchor, PointerToNowhere, Unresolvable
from referencing.jsonschema import DynamicAnchor, specification_with

from dotllm.errors import InvalidSpecError, Pointer, SpecError, UnsupportedError, escaped
from dotllm.languages.json_schema.reading import meta_schema
from dotllm.languages.json_schema.reading.dialect import (
    Dialect,
    detect,
    identifier_of,
    lacks_number_sign,
    name_of_identifier,
)
from dotllm.languages.json_schema.reading.subschemas import below, reached, values_in
from dotllm.suggestions import did_you_mean

_NAME = re.compile("[/#]")
_RELATIVE_POINTER = re.compile("[0-9]+(/.*)?")  # zod-to-json-schema writes them with ``$refStrategy: "relative"``
_COPY_COMPONENT = 'only the schema is read, not the document around it: put the component under "$defs" of the schema'


class Scope(NamedTuple):
    """The properties that a sub-schema inherits from its place: the dialect, the base URI, and the resources entered on
    the way.

    ``entered`` (outermost first, each once) is kept only for documents that can resolve dynamically. ``closes``: if a
    schema names keys, its objects have no others unless it allows them; False where values are excluded (`stating`).
    Equal scopes of one document are one object.
    """

    dialect: Dialect
    base: str
    entered: tuple[str, ...]
    closes: bool = False


ScopedSchema = tuple[Any, Scope]
"""A sub-schema (dict or bool) and its scope."""


_ChildPlace = tuple[int, str | int]
"""The id of the object or list that contains something, and the name or position there."""


class Document:
    """One schema document, never modified."""

    def __init__(self, root: Any, default: Dialect, *, closes: bool = False) -> None:
        self.root = root
        self._places: dict[int, _ChildPlace] | None = None
        self.has_no_dialect = not isinstance(root, dict) or "$schema" not in root
        dialect = self._detect(root, default)
        identifier = identifier_of(root, dialect) if isinstance(root, dict) else None
        self._base = self._resolved("", identifier, root, dialect) if identifier else ""
        self.scope = Scope(dialect, self._base, (), closes)
        self._registry: Registry[Any] | None = None
        self._foreign: frozenset[str] = frozenset()
        self._uri_of: dict[int, str] = {}
        self._dynamic = False
        self._followed: dict[tuple[str, str, Scope], ScopedSchema] = {}
        self._scopes: dict[Scope, Scope] = {self.scope: self.scope}
        self._checked: set[int] = set()
        self.is_clear = False
        """Whether `check` has seen that all keywords mean something."""
        self.declaring: dict[tuple[int, str], bool] = {}
        """Whether a schema (by identity) declares a property; a cache of `applicators`."""

    def check(self) -> None:
        """Refuse the document if one of its keywords is malformed; readers of keywords rely on this (`meta_schema`)."""
        self.is_clear = meta_schema.check(self.root, self.scope.dialect, self._checked)

    def enter(self, schema: dict[str, Any], scope: Scope) -> Scope:
        """The scope inside ``schema``, reached from ``scope``; the schema's own ``$id`` and ``$schema`` count."""
        if schema is self.root:
            return self._within(scope, self._base, self.scope.dialect)
        identifier = identifier_of(schema, scope.dialect)
        if identifier is None:
            return scope
        self._load()
        base = self._uri_of.get(id(schema)) or self._resolved(scope.base, identifier, schema, scope.dialect)
        return self._within(scope, base, self._detect(schema, scope.dialect))

    def stating(self, scope: Scope) -> Scope:
        """``scope`` for a schema that values must not satisfy, or that is only a condition. Its objects stay open:
        closing them would allow less there, and so more here."""
        inner = scope._replace(closes=False)
        return self._scopes.setdefault(inner, inner) if scope.closes else scope

    def follow(self, keyword: str, reference: Any, scope: Scope) -> ScopedSchema:
        """The target of a reference. Raises InvalidSpecError if there is none, UnsupportedError if it is elsewhere."""
        key = (keyword, reference, scope)
        result = self._followed.get(key)
        if result is None:
            if keyword == "$dynamicRef":
                result = self._follow_dynamic(reference, scope)
            elif keyword == "$recursiveRef":
                result = self._follow_recursive(reference, scope)
            else:
                result = self._follow_static(keyword, reference, scope)
            self._check(keyword, reference, result)
            self._followed[key] = result
        return result

    def _check(self, keyword: str, reference: str, target: ScopedSchema) -> None:
        """Raise InvalidSpecError for a malformed target: `check` sees only those that a keyword leads to."""
        schema, scope = target
        if isinstance(schema, dict):
            if id(schema) not in self._checked:
                meta_schema.check(schema, scope.dialect, self._checked, self.pointer(schema))
        elif not isinstance(schema, bool):
            wrong = f"{keyword} {reference!r} leads to something that is not a schema: {meta_schema.NOT_A_SCHEMA}"
            raise InvalidSpecError(wrong, keyword=keyword)

    def pointer(self, schema: Any) -> Pointer:
        """The JSON Pointer of a sub-schema object of this document, found by identity. Only errors need it; but if
        schemas refer to themselves, many errors are raised before it is known whether this is wrong."""
        if self._places is None:
            self._places = _places(self.root)
        tokens: list[str] = []
        place = self._places.get(id(schema))
        while place is not None:  # bounded: by the depth of the document
            around, name = place
            tokens.append(escaped(str(name)))
            place = self._places.get(around)
        return Pointer("".join(f"/{token}" for token in reversed(tokens)))

    def _follow_static(self, keyword: str, reference: str, scope: Scope) -> ScopedSchema:
        if not scope.base and lacks_number_sign(reference) and reached(self.root, unquote(reference)) is not None:
            reference = f"#{reference}"  # without an `$id` it can lead nowhere else
        if scope.base == self._base and reference.startswith("#"):
            fragment = unquote(reference[1:])
            if not fragment:
                return self.root, self._within(scope, self._base, self.scope.dialect)
            if fragment.startswith("/"):
                result = self._walk(fragment, reference, keyword, scope)
                if result is not None:
                    return result[0], scope
        return self._look_up(keyword, reference, scope)[:2]

    def _walk(self, fragment: str, reference: str, keyword: str, scope: Scope) -> tuple[Any] | None:
        """Follow a pointer from the root; None: through another resource. Raises InvalidSpecError: nothing is there."""
        at = self.root
        for token in fragment[1:].split("/"):
            child = below(at, token)
            if child is None:
                raise self._nothing_there(keyword, reference, scope)
            (at,) = child
            if isinstance(at, dict) and identifier_of(at, self.scope.dialect) is not None:
                return None
        return (at,)

    def _look_up(self, keyword: str, reference: str, scope: Scope) -> tuple[Any, Scope, bool]:
        """Look a reference up in the registry: schema, scope, whether it named a dynamic anchor. Raises as `follow`."""
        registry = self._load()
        if reference.startswith("#"):
            uri, fragment = scope.base, reference[1:]
        else:
            uri, fragment = _joined(scope.base, reference, keyword)
        try:
            if fragment and not fragment.startswith("/"):
                anchor = registry.anchor(uri, unquote(fragment)).value
                contents, dynamic = anchor.resource.contents, isinstance(anchor, DynamicAnchor)
                base = uri
            else:
                # (the library takes any text that Python's `int` reads for a position, and fails on others)
                if uri in registry and reached(registry.contents(uri), unquote(fragment)) is None:
                    raise self._nothing_there(keyword, reference, scope)
                resolved = registry.resolver(uri).lookup(f"#{fragment}")
                contents, dynamic = resolved.contents, False
                base = self._uri_of.get(id(resolved.resolver.lookup("#").contents), uri)
        except (NoSuchAnchor, PointerToNowhere, AttributeError, TypeError):  # the last two: no schema on the way
            raise self._nothing_there(keyword, reference, scope) from None
        except (Unresolvable, KeyError):
            if reference.startswith("#"):
                raise self._nothing_there(keyword, reference, scope) from None
            where = "" if uri in ("", reference) else f" ({uri!r})"
            raise UnsupportedError(
                f"{keyword} {reference!r} leads to another document{where}, which is never fetched",
                keyword=keyword,
                code="remote_reference",
                help=self._meant(reference, scope) or _bundle(reference),
            ) from None
        if base in self._foreign:
            self._dynamic = True  # the meta-schemas refer to each other dynamically
        dialect = self._dialect_of(registry, base, scope.dialect)
        return contents, self._within(scope, base, dialect), dynamic

    def _nothing_there(self, keyword: str, reference: str, scope: Scope) -> InvalidSpecError:
        """The refusal of ``reference``, with the definition or anchor that may have been meant."""
        near = did_you_mean(reference, _references(self.root, self.scope.dialect)) if scope.base == self._base else ""
        return InvalidSpecError(
            f"{keyword} {reference!r} points to nothing",
            keyword=keyword,
            code="unknown_reference",
            help=self._meant(reference, scope)
            or near
            or (_COPY_COMPONENT if reference.startswith("#/components/") else ""),
        )

    def _meant(self, reference: str, scope: Scope) -> str:
        """The suggestion of a definition or anchor that has the name at the end of ``reference``; "" if none has."""
        name = _last_name(reference)
        known = _references(self.root, self.scope.dialect)
        result = next((result for result in known if name and _NAME.split(result)[-1] == name), None)
        if result is None:
            return ""
        if scope.base == self._base:
            return f'did you mean "{result}"?'
        return f"""leave out the "$id" around it, which makes it relative to {scope.base!r}, and write "{result}\""""

    def _follow_dynamic(self, reference: str, scope: Scope) -> ScopedSchema:
        contents, inner, dynamic = self._look_up("$dynamicRef", reference, scope)
        if not dynamic:
            return contents, inner
        name = unquote(urldefrag(reference)[1])
        registry = self._load()
        for uri in (*scope.entered, scope.base):
            try:
                anchor = registry.anchor(uri, name).value
            except (NoSuchAnchor, Unresolvable, KeyError):
                continue
            if isinstance(anchor, DynamicAnchor):
                return anchor.resource.contents, self._within(
                    scope, uri, self._dialect_of(registry, uri, scope.dialect)
                )
        return contents, inner

    def _follow_recursive(self, reference: str, scope: Scope) -> ScopedSchema:
        if reference != "#":
            raise InvalidSpecError('$recursiveRef can only be "#"', keyword="$recursiveRef")
        registry = self._load()
        contents, inner, _ = self._look_up("$recursiveRef", "#", scope)
        if isinstance(contents, dict) and contents.get("$recursiveAnchor") is True:
            for uri in scope.entered:
                outer = registry.contents(uri) if uri in registry else None
                if isinstance(outer, dict) and outer.get("$recursiveAnchor") is True:
                    return outer, self._within(scope, uri, self._dialect_of(registry, uri, scope.dialect))
        return contents, inner

    def _within(self, scope: Scope, base: str, dialect: Dialect) -> Scope:
        """``scope`` after entering the resource ``base``."""
        entered = scope.entered
        if self._dynamic:
            for uri in (scope.base, base):
                if uri not in entered:
                    entered = (*entered, uri)
        if base == scope.base and dialect == scope.dialect and entered == scope.entered:
            return scope
        inner = Scope(dialect, base, entered, scope.closes)
        return self._scopes.setdefault(inner, inner)

    def _resolved(self, base: str, identifier: str, schema: dict[str, Any], dialect: Dialect) -> str:
        """The URI of ``schema``, which has this identifier."""
        keyword = name_of_identifier(dialect)
        try:
            return _joined(base, identifier, keyword)[0]
        except InvalidSpecError as error:
            raise error.at(self.pointer(schema) / keyword, keyword) from None

    def _dialect_of(self, registry: Registry[Any], base: str, default: Dialect) -> Dialect:
        if base == self._base:
            return self.scope.dialect
        return self._detect(registry.contents(base), default) if base in registry else default

    def _detect(self, schema: Any, default: Dialect) -> Dialect:
        """`detect`, with the place of ``$schema`` in its errors."""
        try:
            return detect(schema, default)
        except SpecError as error:
            raise error.at(self.pointer(schema) / "$schema") from None

    def _load(self) -> Registry[Any]:
        """The registry of this document, crawled once. Raises InvalidSpecError if its identifiers cannot be read."""
        if self._registry is None:
            specification = _specification(self.scope.dialect)
            meta_schemas = _meta_schemas()
            try:
                registry = meta_schemas.with_resource(self._base, specification.create_resource(self.root)).crawl()
            except SpecError:
                raise
            except Exception as error:  # the library's own errors, for a malformed document
                raise InvalidSpecError(
                    f"the identifiers of the document cannot be read: {error}", keyword="$id"
                ) from error
            self._registry = registry
            self._foreign = frozenset(meta_schemas)
            for uri in registry:
                self._uri_of.setdefault(id(registry.contents(uri)), uri)
            self._uri_of[id(self.root)] = self._base
            anchors = {"$dynamicAnchor", "$recursiveAnchor"}
            self._dynamic = any(isinstance(v, dict) and not anchors.isdisjoint(v) for v in values_in(self.root))
        return self._registry


def _last_name(reference: str) -> str:
    return _NAME.split(reference.removesuffix(".json"))[-1]


def _bundle(reference: str) -> str:
    """How to make the target of ``reference`` a part of the document."""
    if _RELATIVE_POINTER.fullmatch(reference):
        return 'a relative JSON Pointer is not a reference: write the pointer from the root, "#/…"'
    name = _last_name(reference)
    is_name = name and "://" not in reference
    return f'put it under "$defs", and write "#/$defs/{name}"' if is_name else "bundle it under $defs"


def _places(root: Any) -> dict[int, _ChildPlace]:
    """The place of each object and list of a document, by its id; the root is left out."""
    result: dict[int, _ChildPlace] = {}
    pending: list[Any] = [root]
    while pending:  # bounded: by the document, once
        value = pending.pop()
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, (dict, list)) and id(child) not in result and child is not root:
                result[id(child)] = id(value), name
                pending.append(child)
    return result


def _references(root: Any, dialect: Dialect) -> Iterator[str]:
    """The references that lead from ``root`` to a definition, or to an anchor of its own resource."""
    pending: list[tuple[Any, str, bool]] = [(root, "#", True)]
    while pending:  # bounded: by the document, for an error
        value, place, own = pending.pop()
        if isinstance(value, dict):
            own = own and (value is root or identifier_of(value, dialect) is None)
            anchor = value.get("$anchor")
            if own and isinstance(anchor, str):
                yield f"#{anchor}"
            if place.endswith(("/$defs", "/definitions")):
                yield from (f"{place}/{escaped(str(name))}" for name in value)
            pending += ((child, f"{place}/{escaped(str(name))}", own) for name, child in value.items())
        elif isinstance(value, list):
            pending += ((child, f"{place}/{number}", own) for number, child in enumerate(value))


def _joined(base: str, reference: str, keyword: str) -> tuple[str, str]:
    """``reference``, a URI reference, resolved against ``base``: URI and fragment. Raises InvalidSpecError."""
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError as error:
        raise InvalidSpecError(f"{keyword} {reference!r} is not a URI reference: {error}", keyword=keyword) from None
    return uri, fragment


@cache
def _specification(dialect: Dialect) -> Specification[Any]:
    """The library's specification of a dialect, but with more places to look for identifiers. The library takes the
    values of ``items`` and ``dependencies`` to be all schemas or all lists, going by the dialect or the first value;
    here they may be both (`dialect`)."""
    library = specification_with(dialect.uri)

    def subresources_of(contents: Any) -> Iterator[Any]:
        dependencies = contents.get("dependencies") if isinstance(contents, dict) else None
        more = dependencies.values() if isinstance(dependencies, dict) else ()
        for group in (*library.subresources_of(contents), *more):
            yield from (
                resource for resource in (group if isinstance(group, list) else (group,)) if isinstance(resource, dict)
            )

    return Specification(  # type: ignore[call-arg]  # made by attrs, which the library hides from type checkers
        name=library.name,
        id_of=library.id_of,
        subresources_of=subresources_of,
        maybe_in_subresource=library.maybe_in_subresource,
        anchors_in=lambda _, contents: library.anchors_in(contents),
    )


def _meta_schemas() -> Registry[Any]:
    """The meta-schemas of the drafts, if the package that holds them is installed."""
    try:
        specifications = importlib.import_module("jsonschema_specifications")
    except ImportError:
        return Registry()
    registry: Registry[Any] = specifications.REGISTRY
    return registry
