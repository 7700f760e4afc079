"""Fault injection, for tests against a live server: make chosen compiles slow, busy, failing or deadly.

``DOTLLM_FAULTS`` is a JSON list of faults, each {"needle": text, "do": "sleep" | "burn" | "fail" | "refuse" | "exit",
"seconds": s}; a fault strikes every specification whose text contains the needle. Unset (always, outside tests), it
costs one look at an empty tuple.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

from dotllm.compilation.specification import Specification
from dotllm.errors import Unsupported

VARIABLE = "DOTLLM_FAULTS"


class Fault(NamedTuple):
    """One fault (see the module)."""

    needle: str
    do: str
    seconds: float = 0.0


def from_environment() -> tuple[Fault, ...]:
    """The faults of ``DOTLLM_FAULTS``; none when unset."""
    text = os.environ.get(VARIABLE)
    return tuple(Fault(**entry) for entry in json.loads(text)) if text else ()


def strike(faults: tuple[Fault, ...], specification: Specification) -> None:
    """Do what the faults say for this specification."""
    for fault in faults:
        if fault.needle not in specification.text:
            continue
        if fault.do == "sleep":  # like work that releases the GIL
            time.sleep(fault.seconds)
        elif fault.do == "burn":  # like a front end: pure Python that holds it
            end = time.monotonic() + fault.seconds
            while time.monotonic() < end:
                pass
        elif fault.do == "fail":
            raise RuntimeError("injected failure")
        elif fault.do == "refuse":
            raise Unsupported("injected refusal", keyword="injected")
        elif fault.do == "exit":
            os._exit(86)
        else:
            raise ValueError(f"unknown fault {fault.do!r}")
