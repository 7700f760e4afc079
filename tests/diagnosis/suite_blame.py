"""Which keyword makes a document of the official suite invalid: our answer against jsonschema's.

python -m tests.diagnosis.suite_blame            # all invalid documents: the share with the right keyword, and the rest
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError

from dotllm.diagnosis.why import explain_schema
from dotllm.errors import SpecError
from tests.languages.json_schema.official_suite import DIALECTS, SUITE, files

_VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}


def invalid_documents() -> Iterator[tuple[str, str, Any, Any]]:
    """(Draft, name, schema, document) of all documents whose schema does not refer to another document."""
    for draft, file in files():
        if file.startswith("optional/") or file in ("refRemote", "format"):
            continue
        for group in json.loads((SUITE / draft / f"{file}.json").read_text()):
            for test in group["tests"]:
                if not test["valid"]:
                    yield (
                        draft,
                        f"{draft}/{file}: {group['description']}: {test['description']}",
                        group["schema"],
                        test["data"],
                    )


def failing(errors: Iterable[ValidationError]) -> Iterator[tuple[str, str]]:
    """(Keyword, the schema that has it) of all failing keywords, including those inside failing branches.

    Places cannot be compared: jsonschema's go through references.

    Yields:
        Both as text.
    """
    for error in errors:
        yield str(error.validator), json.dumps(error.schema, sort_keys=True)
        yield from failing(error.context or [])


def judged(draft: str, schema: Any, document: Any) -> str:
    """ "right": the failing keyword, at its place; "inside": a keyword within its value; "other": neither; "refused":
    the schema is refused, or jsonschema fails; "fits": the document fits, which must not happen."""
    try:
        why = explain_schema(schema, json.dumps(document, ensure_ascii=False), default_dialect=DIALECTS[draft])
        expected = {*failing(_VALIDATORS[draft](schema).iter_errors(document))}
    except (SpecError, re.error):
        return "refused"
    if why is None:
        return "fits"
    found = {_judged_blame(schema, one.pointer, expected) for one in why.blamed} or {"other"}
    return next(verdict for verdict in ("other", "inside", "right") if verdict in found)


def _judged_blame(schema: Any, pointer: str, expected: set[tuple[str, str]]) -> str:
    """The verdict for one place."""
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    verdict = "other"
    for depth, token in enumerate(tokens, 1):
        value = schema[int(token)] if isinstance(schema, list) else schema[token]
        here = (token, json.dumps(schema, sort_keys=True))
        # (jsonschema reports a sub-schema that is false as failing itself)
        if here in expected or (value is False and ("None", "false") in expected):
            verdict = "right" if depth == len(tokens) else "inside"
        schema = value
    return verdict


def shares(step: int = 1) -> tuple[Counter[str], list[str]]:
    """How many of every ``step``-th invalid document get each verdict, and the documents with "other" or "fits"."""
    counts: Counter[str] = Counter()
    wrong = []
    for draft, name, schema, document in [*invalid_documents()][::step]:
        verdict = judged(draft, schema, document)
        counts[verdict] += 1
        if verdict in ("other", "fits"):
            wrong.append(f"{verdict}: {name}")
    return counts, wrong


if __name__ == "__main__":
    counts, wrong = shares()
    print(*wrong, counts, sep="\n")
