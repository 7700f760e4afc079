"""Options of compilation: one frozen dataclass, each field a ``--dotllm-…`` flag and a ``DOTLLM_…`` variable.

Flags become environment variables (`dotllm.cli.options`), because compiles run in a child process (vLLM's engine core),
which inherits the environment. Field ``disk_bytes`` is flag ``--dotllm-disk-bytes`` and variable ``DOTLLM_DISK_BYTES``.
Nothing here touches the network unless ``store`` or ``compile_on`` is given.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from dotllm import system
from dotllm.system import user_cache_directory

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOST_PROCESSES = 4
"""How many processes compile by default at most. More would hardly finish sooner: the engine's loop receives their
indexes one after another."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)", re.IGNORECASE)
_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": GIB << 10}


def parse_bytes(text: str, least: int = 0) -> int:
    """``"512MiB"``, ``"1.5g"``, ``"4096"`` → bytes, ``least`` or more. Units are powers of 1024, whatever their
    spelling. (This parser and those below raise ValueError for any other text.)"""  # noqa: DOC501
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > 18:
        raise ValueError(f"{text[:40]!r} is not a size (examples: 512MiB, 2g, 1048576)")
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    if size < least:
        raise ValueError(f"{text!r} is too small; the minimum is {format_bytes(least)}")
    return size


def format_bytes(value: int) -> str:
    """The inverse of `parse_bytes`, for --help."""
    for suffix, unit in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def parse_switch(text: str) -> bool:
    """on/1/true/yes → True, off/0/false/no → False, in any case."""
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r}: expected on or off")


def parse_count(text: str, least: int = 0) -> int:
    """A whole number, ``least`` or more."""
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def parse_seconds(text: str, least: float = 0.0) -> float:
    """A number of seconds, ``least`` or more."""
    with contextlib.suppress(ValueError):
        if least <= float(text) < math.inf:
            return float(text)
    raise ValueError(f"{text!r} is not a time of at least {least:g} seconds")


def parse_cluster(text: str) -> str:
    """An address of a Ray cluster."""
    if not text.startswith("ray://"):
        raise ValueError(f"{text!r} is not an address of a Ray cluster (examples: ray://host:10001, ray://auto)")
    return text


def parse_store(text: str) -> str:
    """The URL of a shared store, for which there is a transport, whose package is installed."""
    from dotllm.compilation import store

    try:
        store.check(text)
    except ImportError as error:
        raise ValueError(str(error)) from None
    return text


_parse_memory = partial(parse_bytes, least=64 * MIB)
_parse_some = partial(parse_count, least=1)
_parse_timeout = partial(parse_seconds, least=0.001)


def _option(default: Any, metavar: str, help_text: str, parse: Any = str) -> Any:
    metadata = {"metavar": metavar, "help": help_text, "parse": parse}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class CompilationOptions:
    """All options of the CompilationManager and its caches. See docs/operations.md for advice on each."""

    cache_memory_bytes: int = _option(
        512 * MIB, "SIZE", "bound of the in-memory cache of compiled indexes", parse_bytes
    )
    max_pinned_bytes: int = _option(
        2 * GIB, "SIZE", "memory that running requests may pin; above it, new specifications get 503", parse_bytes
    )
    disk_bytes: int = _option(1 * GIB, "SIZE", "bound of the on-disk cache; 0 turns it off", parse_bytes)
    cache_dir: str = _option("", "PATH", "where the on-disk cache lives (default: ~/.cache/dotllm)")
    store: str = _option(
        "", "URL", "shared store: s3://…, gs://…, redis://…, file://…, any fsspec URL (default: none)", parse_store
    )
    store_timeout: float = _option(2.0, "SECONDS", "time limit of one call to the shared store", _parse_timeout)
    store_readonly: bool = _option(False, "{on,off}", "on: the shared store is only read (default: off)", parse_switch)
    store_secret: str = _option("", "TEXT", "key that authenticates stored entries (set it by environment variable)")
    compile_threads: int = _option(2, "N", "compile threads (more start when these are blocked)", _parse_some)
    compile_timeout: float = _option(
        20.0, "SECONDS", "a compile that takes longer is abandoned or killed", _parse_timeout
    )
    compile_memory: int = _option(1 * GIB, "SIZE", "memory limit of a compile in a separate process", _parse_memory)
    subprocess_threshold_bytes: int = _option(
        32 * KIB, "SIZE", "larger specifications compile in a separate process", parse_bytes
    )
    compile_processes: int = field(
        default_factory=lambda: max(2, min(system.usable_cpus() // 4, MOST_PROCESSES)),
        metadata={
            "metavar": "N",
            "help": "compile processes, started with the server; 0: only threads compile "
            f"(default: a quarter of the CPUs, 2 to {MOST_PROCESSES})",
            "parse": parse_count,
        },
    )
    compile_on: str = _option(
        "", "URL", "ray://HOST:PORT or ray://auto: Ray cluster for large specifications", parse_cluster
    )
    queue_limit: int = _option(4096, "N", "largest number of queued specifications; more are refused", _parse_some)
    queue_bytes: int = _option(256 * MIB, "SIZE", "largest total size of queued specifications", parse_bytes)
    failure_ttl: float = _option(60.0, "SECONDS", "how long a failed specification is remembered", parse_seconds)
    store_write_interval: float = _option(
        2.0, "SECONDS", "minimum time between two writes of one index (doubles after each write)", parse_seconds
    )
    overlap: bool = _option(True, "{on,off}", "on (default): prefill runs while the index compiles", parse_switch)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> CompilationOptions:
        """From ``DOTLLM_…`` variables; unset or empty variables mean defaults. A ValueError names a bad variable."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for spec in fields(cls):
            variable = variable_name(spec.name)
            text = environment.get(variable)
            if not text:
                continue
            try:
                values[spec.name] = spec.metadata["parse"](text)
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from None
        made = cls(**values)
        if made.compile_on and made.compile_processes <= 0:  # (they compile while the cluster does not answer)
            needed = variable_name("compile_processes")
            raise ValueError(f"{variable_name('compile_on')}: needs compile processes: set {needed} to at least 1")
        return made

    @property
    def disk_directory(self) -> Path:
        """The directory of the on-disk cache."""
        return (Path(self.cache_dir) if self.cache_dir else user_cache_directory()) / "index"


def variable_name(name: str) -> str:
    """The environment variable of a field."""
    return f"DOTLLM_{name.upper()}"


def flag_of(variable: str) -> str:
    """The flag that becomes the environment variable ``variable``."""
    return "--dotllm-" + variable.removeprefix("DOTLLM_").lower().replace("_", "-")


def describe() -> list[tuple[str, str, str]]:
    """(variable, metavar, help with the default) of every option, for command lines."""
    rows = []
    for spec in fields(CompilationOptions):
        default: Any = spec.default
        text = spec.metadata["help"]
        if spec.metadata["parse"] in (parse_bytes, _parse_memory):
            text += f" (default: {format_bytes(default)})"
        elif isinstance(default, (int, float)) and not isinstance(default, bool):
            text += f" (default: {default:g})"
        rows.append((variable_name(spec.name), spec.metadata["metavar"], text))
    return rows
