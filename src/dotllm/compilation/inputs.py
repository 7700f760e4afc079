"""Specifications and sample texts in files, as `dotllm compile` reads them.

A file holds one specification, of the kind that its ending names; a ``.jsonl`` file holds one on each line, in one of
these forms:

    {"json_schema": {…}}   {"regex": "…"}   {"choice": […]}   {"grammar": "…"}   {"structural_tag": …}
    {"response_format": …} or {"structured_outputs": …}        the body of a request, as in a server's log
    {"schema": {…}, "tests": [{"valid": true, "data": …}]}     MaskBench's own form

Each form may also have "examples": […], outputs (strings, or JSON values) that warm the masks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dotllm.compilation.specification import JSON_FIELDS, Kind, OptionValue, Specification, json_options
from dotllm.errors import LineColumn

KIND_OF_SUFFIX = {
    ".json": Kind.JSON_SCHEMA,
    ".lark": Kind.GRAMMAR,
    ".ebnf": Kind.GRAMMAR,
    ".gbnf": Kind.GRAMMAR,
    ".regex": Kind.REGEX,
    ".choice": Kind.CHOICE,
}
SUFFIXES = (*KIND_OF_SUFFIX, ".jsonl")
_KIND_OF_FIELD = {"json": Kind.JSON_SCHEMA, "schema": Kind.JSON_SCHEMA, **{kind.value: kind for kind in Kind}}
_JSON_KINDS = (Kind.JSON_SCHEMA, Kind.JSON_OBJECT, Kind.STRUCTURAL_TAG)


class Input(NamedTuple):
    """One specification to compile: its name, the specification, and outputs to warm it with."""

    name: str
    specification: Specification
    examples: tuple[str, ...] = ()
    path: str = ""
    """The file, as the user named it."""
    text: str = ""
    """The content of the file, if this specification is all that it holds."""


class BadInput(ValueError):
    """A file or line that holds no specification; the message says where and why.

    ``location``: where the ``text`` of the file ``path`` stops being JSON. ``is_missing``: there is nothing to read.
    """

    def __init__(
        self,
        message: str,
        *,
        location: LineColumn | None = None,
        path: str = "",
        text: str = "",
        is_missing: bool = False,
    ) -> None:
        super().__init__(message)
        self.location = location
        self.path = path
        self.text = text
        self.is_missing = is_missing


class NoSchema(BadInput):
    """A file in a directory of specifications: JSON that is not a schema, such as an answer."""


def read_inputs(
    paths: list[Path],
    kind: Kind | None = None,
    options: Mapping[str, OptionValue] | None = None,
    passed_over: list[NoSchema] | None = None,
) -> Iterator[Input]:
    """Read files and directories (recursively, files with a known ending).

    ``kind`` overrides the kind that a file's ending names (lines name their own kind). ``options`` apply to the JSON
    kinds. ``passed_over`` collects the files of directories that are not schemas.

    Yields:
        Each specification, in the order of ``paths``.

    Raises:
        BadInput: a line or a file holds no specification, or a directory has no file with a known ending.
    """
    for path in paths:
        for file in files_of(path):
            for given in read_file(file, kind, options, is_listed=file != path):
                if isinstance(given, NoSchema):
                    if passed_over is not None:
                        passed_over.append(given)
                    continue
                if isinstance(given, BadInput):
                    raise given
                yield given


def files_of(path: Path) -> list[Path]:
    """List the files of a directory that have a known ending, or only ``path`` if it is not a directory.

    Raises:
        BadInput: the directory has no such file.
    """
    if not path.is_dir():
        return [path]
    if path.resolve().parent == path.resolve():
        raise BadInput(f"{path}: name the directory that holds the specifications, not the whole disk", is_missing=True)
    unread: list[OSError] = []
    places = [(Path(folder), names) for folder, _, names in os.walk(path, onerror=unread.append)]
    files = sorted(folder / name for folder, names in places for name in names if Path(name).suffix in SUFFIXES)
    files = [file for file in files if _is_file(file)]
    if not files:
        why = f"; {unread[0].strerror}: {unread[0].filename}" if unread else ""
        message = f"{path}: no specification files in it (endings: {', '.join(SUFFIXES)}){why}"
        raise BadInput(message, is_missing=True)
    return files


def _is_file(path: Path) -> bool:
    """Whether it is a file that can be read."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_texts(path: Path) -> list[str]:
    """Sample outputs: each file of a directory, each line (a JSON value) of a ``.jsonl`` file, or a whole file."""
    if path.is_dir():
        return [text for file in sorted(path.rglob("*")) if file.is_file() for text in read_texts(file)]
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [_as_text(json.loads(line)) for line in _lines(content) if line.strip()]
    return [content]


def read_file(
    path: Path,
    kind: Kind | None = None,
    options: Mapping[str, OptionValue] | None = None,
    *,
    is_listed: bool = False,
) -> Iterator[Input | BadInput]:
    """Read one file.

    ``is_listed``: the user named its directory, not the file; JSON that is not a schema is then a `NoSchema`.

    Yields:
        Each specification, and a reason for each line (or the file) that holds none.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield BadInput(f"{path}: {error}", is_missing=True)
        return
    if path.suffix == ".jsonl":
        for number, line in enumerate(_lines(content), 1):
            if line.strip():
                try:
                    yield _read_line(f"{path.name}:{number}", line, options)
                except BadInput as error:
                    yield error
        return
    is_named_schema = kind is Kind.JSON_SCHEMA
    kind = kind or KIND_OF_SUFFIX.get(path.suffix)
    if kind is None:
        message = f"{path}: unknown ending; give --kind (known endings: {', '.join(SUFFIXES)})"
        yield BadInput(message, is_missing=True)
        return
    try:
        if is_listed and kind is Kind.JSON_SCHEMA and not is_named_schema and _is_structural_tag(content):
            kind = Kind.STRUCTURAL_TAG
        specification = parse(content, str(path), kind, options)._replace(name=path.name)
        if is_listed and kind is Kind.JSON_SCHEMA and not is_named_schema and not _looks_like_schema(content):
            yield NoSchema(f"{path}: not a schema")
        else:
            yield specification
    except BadInput as error:
        yield error


def _is_structural_tag(content: str) -> bool:
    """Whether it is a structural tag in the form that `response_format` has, which no schema has."""
    value = _json(content, "")
    return isinstance(value, dict) and value.get("type") == Kind.STRUCTURAL_TAG.value


def _looks_like_schema(content: str) -> bool:
    from dotllm.languages.json_schema.reading.ineffective import looks_like_schema  # its imports take time

    return looks_like_schema(_json(content, ""))


def parse(content: str, where: str, kind: Kind, options: Mapping[str, OptionValue] | None = None) -> Input:
    """Read the whole content of a file as one specification of a known kind. ``where`` is its name, with which messages
    of BadInput begin."""
    value: Any = content
    if kind in (Kind.JSON_SCHEMA, Kind.CHOICE, Kind.STRUCTURAL_TAG):
        read = _json(content, where)
        # (`Specification.from_value` would read a string as JSON text.)
        value = content if read is None or isinstance(read, str) else read
    elif kind is Kind.REGEX:
        value = content.removesuffix("\n")
    return Input(where, _specification(kind, value, options), (), where, content)


def _read_line(where: str, line: str, options: Mapping[str, OptionValue] | None) -> Input:
    body = _json(line, where)
    if not isinstance(body, dict):
        raise BadInput(f"{where}: not a JSON object, or nested too deeply, or a number has too many digits")
    try:
        kind, value = _kind_and_value(body, where)
        own = _options_of(body.get("structured_outputs") or {}, where)
        examples = list(body.get("examples", ()))
        examples += [test["data"] for test in body.get("tests", ()) if test.get("valid")]
    except (AttributeError, KeyError, TypeError) as error:  # a part is missing, or has the wrong type
        raise BadInput(f"{where}: the line has none of the accepted forms ({type(error).__name__}: {error})") from None
    name = str(body.get("name", where))
    return Input(
        name, _specification(kind, value, {**(options or {}), **own}), tuple(_as_text(example) for example in examples)
    )


def _kind_and_value(body: Mapping[str, Any], where: str) -> tuple[Kind, Any]:
    if "response_format" in body:
        response = body["response_format"]
        if response["type"] == "json_schema":
            return Kind.JSON_SCHEMA, response["json_schema"]["schema"]
        if response["type"] == "json_object":
            return Kind.JSON_OBJECT, ""
        if response["type"] == "structural_tag":
            return Kind.STRUCTURAL_TAG, response
        raise BadInput(f"{where}: response_format of type {response['type']!r} constrains nothing")
    inner = body.get("structured_outputs", body)
    said = [name for name in _KIND_OF_FIELD if inner.get(name) is not None]
    if not said:
        raise BadInput(
            f"{where}: has none of {', '.join(kind.value for kind in Kind)}, response_format, structured_outputs"
        )
    if len(said) > 1:
        raise BadInput(f"{where}: has {' and '.join(said)}; a line holds one specification")
    return _KIND_OF_FIELD[said[0]], inner[said[0]]


def _options_of(structured: Mapping[str, Any], where: str) -> dict[str, OptionValue]:
    """The options in ``structured_outputs``, under the names that `Specification` has for them.

    Raises:
        BadInput: a field is unknown, or has a value of the wrong type.
    """
    for name, value in structured.items():
        if value is None or name in _KIND_OF_FIELD:
            continue
        if name not in JSON_FIELDS:
            raise BadInput(f"{where}: structured_outputs has no field {name!r}")
        wanted, what = (str, "a regular expression") if name == "whitespace_pattern" else (bool, "true or false")
        if not isinstance(value, wanted):
            raise BadInput(f"{where}: structured_outputs.{name} must be {what}")
    return json_options(structured)


def _specification(kind: Kind, value: Any, options: Mapping[str, OptionValue] | None) -> Specification:
    return Specification.from_value(kind, value, options if kind in _JSON_KINDS else None)


def _json(text: str, where: str) -> Any:
    """The value of a JSON text. None if Python refuses to read it because of its depth or of a number with too many
    digits: the compiler's message is better in these cases.

    Raises:
        BadInput: the text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        message, location = f"{where}: not JSON: {error.msg}", LineColumn(error.lineno, error.colno)
        raise BadInput(message, location=location, path=where, text=text) from None
    except (ValueError, RecursionError):
        return None


def _lines(content: str) -> list[str]:
    """The lines of a ``.jsonl`` file. `str.splitlines` would also split at characters that strings may contain."""
    return content.split("\n")


def _as_text(example: Any) -> str:
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
