"""Our options in the YAML file of ``--config``, beside vLLM's.

vLLM reads the file while it parses its arguments, and stops at an unknown key. So we first take our keys out: they
become environment variables, as our flags do (`options`), and vLLM gets a copy of the file without them.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from dotllm.cli import options

_FLAG = "--config"
_PREFIX = "dotllm-"


def take(argv: list[str], environment: MutableMapping[str, str]) -> list[str]:
    """Move our options from the file that ``argv`` names to ``environment``; an unknown one ends the program.

    A file without any, or that cannot be read, is vLLM's matter.
    """
    index = argv.index(_FLAG) + 1 if _FLAG in argv else len(argv)
    if index >= len(argv):
        return argv
    path = Path(argv[index])
    found = _read(path)
    ours = {key: value for key, value in found.items() if _name(key).startswith(_PREFIX)}
    if not ours:
        return argv
    options.export([f"--{_name(key)}={_text(key, value, path)}" for key, value in ours.items()], environment)
    rest = _copy(path, {key: value for key, value in found.items() if key not in ours})
    return [*argv[:index], str(rest), *argv[index + 1 :]]


def _read(path: Path) -> dict[Any, Any]:
    import yaml  # comes with vLLM

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(key: Any) -> str:
    return str(key).replace("_", "-")


def _text(key: Any, value: Any, path: Path) -> str:
    """``value`` as on a command line. YAML reads ``on`` and ``off`` as booleans."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value)
    options.fail(f"{key} in {path} needs a value, not {value!r}")


def _copy(path: Path, content: dict[Any, Any]) -> Path:
    """A file of the same name with this content, for as long as the program runs."""
    import yaml

    directory = tempfile.TemporaryDirectory(prefix="dotllm-config-")
    atexit.register(directory.cleanup)
    copy = Path(directory.name, path.name)
    copy.write_text(yaml.safe_dump(content, sort_keys=False))
    return copy
