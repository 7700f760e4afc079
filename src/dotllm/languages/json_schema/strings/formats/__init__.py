"""The standard values of ``format``, each as the regular language that its RFC defines.

JSON Schema Validation 2020-12 §7.3 lists them; a name means the same in all drafts that have it. Other names are
Pydantic's and OpenAPI's, if a reference defines their strings. Names without a grammar (password, and all unknown
names) are annotations, which `ineffective_keywords` reports. What is not regular in a standard is named where its
format is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.languages.json_schema.strings.formats.registry import (
        FORMATS,
        build_ahead,
        find,
        fragment,
        fragment_of_length,
    )

__all__ = ["FORMATS", "build_ahead", "find", "fragment", "fragment_of_length"]

__getattr__, __dir__ = exports(__name__, registry="FORMATS build_ahead find fragment fragment_of_length")
