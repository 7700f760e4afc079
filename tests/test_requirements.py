"""The pinned lists of requirements/ are complete for each patch release of their Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PYTHON = "3.11"
LEFT_OUT = {"torchaudio", "torchcodec", "torchvision"}
"""See the head of cpu.txt."""


def listed() -> dict[str, Requirement]:
    """The pins of `make install-dev`, by name."""
    lines = "".join((ROOT / "requirements" / name).read_text() for name in ("cpu.txt", "dev.txt")).splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def missing(python: str) -> Iterator[str]:
    """What the pins require in the release ``python``, and the lists do not have for it."""
    pins, environment = listed(), {"extra": "", "python_full_version": python}
    for name in pins:
        try:
            wanted = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # its marker does not hold here
            continue
        for requirement in map(Requirement, wanted):
            if requirement.marker is not None and not requirement.marker.evaluate(environment):
                continue
            pin = pins.get(canonicalize_name(requirement.name))
            is_there = pin is not None and (pin.marker is None or pin.marker.evaluate(environment))
            if not is_there and requirement.name not in LEFT_OUT:
                yield f"{name} needs {requirement}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason=f"the lists are for Python {PYTHON}")
@pytest.mark.parametrize("patch", range(16))
def test_the_lists_have_what_each_patch_release_needs(patch: int) -> None:
    assert not list(missing(f"{PYTHON}.{patch}"))
