"""dotllm's options of ``dotllm serve``: each is a ``--dotllm-…`` flag, a key of the ``--config`` file, and a variable.

The flag is taken out of the arguments before vLLM parses them and becomes an environment variable, because settings
must reach every process that vLLM starts (API servers, engine core, workers), and all of these inherit the environment.
vLLM reads the file that ``--config`` names while it parses its arguments, and stops at an unknown key, so it gets a
copy without dotllm's keys. The options of compilation are the fields of `CompilationOptions`. To add another option,
add its line to ``OPTIONS`` and read its variable where it is needed (for the plugin: `vllm_plugin.settings.VALUES`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from dotllm.compilation.options import describe, flag_of
from dotllm.suggestions import did_you_mean
from dotllm.temporary import make_directory
from dotllm.vllm_plugin import settings


class Option(NamedTuple):
    """``--dotllm-NAME VALUE``, and the environment variable it becomes."""

    variable: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        """Such as ``--dotllm-gpu-masks``."""
        return flag_of(self.variable)


OPTIONS: tuple[Option, ...] = (
    Option(
        "DOTLLM_DEFAULT_BACKEND",
        "{dotllm,vllm}",
        "what vLLM's backend 'auto' means (default: dotllm)",
    ),
    Option(
        "DOTLLM_HOOKS",
        "TIER,…",
        "the tiers of hooks that are on: enforce alone enforces; speed, api, tools, extra, workaround (default: all)",
    ),
    Option(
        "DOTLLM_COALESCENCE",
        "{off,canonical}",
        "canonical: forced text is entered in one spelling, not generated token by token (default: off)",
    ),
    Option(
        "DOTLLM_FINISH_WITHIN_MAX_TOKENS",
        "{off,on}",
        "on: every constrained answer ends before max_tokens cuts it, unless the request says otherwise (default: off)",
    ),
    Option(
        "DOTLLM_END_IN_REASONING",
        "{forbid,allow}",
        "forbid (default): while a request reasons and a constraint follows, no EOS or stop token ends its answer",
    ),
    Option(
        "DOTLLM_GPU_MASKS",
        "{auto,on,off}",
        "auto (default): on CUDA devices mask rows live in a table on the GPU",
    ),
    Option(
        "DOTLLM_PROPERTY_ORDER",
        "{declared,any}",
        "order of an object's properties, unless the request says otherwise (default: declared)",
    ),
    Option(
        "DOTLLM_ADDITIONAL_PROPERTIES",
        "{closed,open}",
        "open: objects that list properties may have others, unless schema or request says otherwise (default: closed)",
    ),
    Option(
        "DOTLLM_INSPECT",
        "{off,on}",
        "on: the inspector at /dotllm/inspect; anyone with the API key sees the requests there (default: off)",
    ),
    Option(
        "DOTLLM_PREVIEW",
        "[{off,on}]",
        "vLLM's own backend answers; what dotllm would refuse is logged and counted (default: off)",
    ),
    Option(
        "DOTLLM_WHITESPACE",
        "{formatted,any}",
        "white space between tokens of JSON: what formatters write, or any, up to 320 characters (default: formatted)",
    ),
    Option(
        "DOTLLM_WARNINGS",
        "{on,off}",
        "on (default): the header x-dotllm-warnings of an answer lists the parts of its request that have no effect",
    ),
    Option(
        "DOTLLM_NUMBER_DIGITS",
        "{bounded,any}",
        "numbers of JSON: at most as long as every reader accepts (64 characters, or what the schema needs), or any "
        "(default: bounded)",
    ),
    *(Option(*row) for row in describe()),
)
GROUPS: dict[str, tuple[str, ...]] = {
    "Constraints": (
        *("default-backend", "preview", "coalescence", "property-order", "additional-properties", "whitespace"),
        *("number-digits", "finish-within-max-tokens", "end-in-reasoning", "warnings"),
    ),
    "GPU": ("gpu-masks",),
    "Cache": ("cache-memory-bytes", "disk-bytes", "cache-dir", "store", "store-secret", "store-readonly"),
    "Limits": ("max-pinned-bytes", "compile-timeout", "compile-memory", "queue-limit", "queue-bytes"),
}
"""Options by topic, for the help; all others are "Advanced"."""
_CONFIG = "--config"
_PREFIX = "dotllm-"


def export(argv: list[str], environment: MutableMapping[str, str]) -> list[str]:
    """Move dotllm's options from ``argv`` to ``environment``. An unknown ``--dotllm-…`` flag ends the program (status
    2)."""
    by_flag = {option.flag: option for option in OPTIONS}
    kept: list[str] = []
    arguments = deque(argv)
    while arguments:
        argument = arguments.popleft()
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")  # as vLLM reads its own flags
        if not flag.startswith("--dotllm-"):
            kept.append(argument)
            continue
        option = by_flag.get(flag)
        if option is None:
            fail(f"unknown option {flag}; {did_you_mean(flag, by_flag) or 'dotllm serve --help lists them'}")
        may_be_bare = option.metavar.startswith("[") and not (arguments and arguments[0].strip() in ("", "on", "off"))
        if not equals and may_be_bare:
            value = "on"
        elif not equals:
            if not arguments:
                fail(f"{flag} needs a value {option.metavar}")
            value = arguments.popleft()
        if not value.strip():
            fail(f"{flag} needs a value {option.metavar}, and was given an empty one; leave it out for the default")
        environment[option.variable] = value
    return kept


def take_from_file(argv: list[str], environment: MutableMapping[str, str]) -> list[str]:
    """Move dotllm's options from the file that ``argv`` names to ``environment``; an unknown option ends the program.

    A file that has no such options, or that cannot be read, is left to vLLM. ``--config=FILE`` becomes ``--config
    FILE``, because vLLM accepts the first form and ignores the file.
    """
    joined = f"{_CONFIG}="
    argv = [part for word in argv for part in ((_CONFIG, word[len(joined) :]) if word.startswith(joined) else (word,))]
    index = argv.index(_CONFIG) + 1 if _CONFIG in argv else len(argv)
    if index >= len(argv):
        return argv
    path = Path(argv[index])
    configuration = _read_yaml(path)
    ours = {key: value for key, value in configuration.items() if _flag_name(key).startswith(_PREFIX)}
    if not ours:
        return argv
    export([f"--{_flag_name(key)}={_flag_value(key, value, path)}" for key, value in ours.items()], environment)
    rest = _write_yaml(path, {key: value for key, value in configuration.items() if key not in ours})
    return [*argv[:index], str(rest), *argv[index + 1 :]]


def _read_yaml(path: Path) -> dict[Any, Any]:
    import yaml  # comes with vLLM

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _flag_name(key: Any) -> str:
    return str(key).replace("_", "-")


def _flag_value(key: Any, value: Any, path: Path) -> str:
    """``value`` as on a command line. YAML reads ``on`` and ``off`` as booleans."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value)
    fail(f"{key} in {path} needs a value, not {value!r}")


def _write_yaml(path: Path, content: dict[Any, Any]) -> Path:
    """Write a file of the same name with this content. It exists as long as the program runs."""
    import yaml

    copy = make_directory("config") / path.name
    copy.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return copy


def wants_help(argv: list[str]) -> bool:
    """Whether vLLM will print its help for this command."""
    return any(argument in ("-h", "--help") or argument.startswith("--help=") for argument in argv)


def help_text() -> str:
    """The text about dotllm's options, for ``dotllm serve --help``."""
    group_of = {f"--dotllm-{name}": group for group, names in GROUPS.items() for name in names}
    lines = ["dotllm options (each also an environment variable):"]
    for group in (*GROUPS, "Advanced"):
        lines.append(f"\n{group}:")
        for option in OPTIONS:
            if group_of.get(option.flag, "Advanced") == group:
                lines += [f"  {option.flag} {option.metavar}", f"      {option.help}  [{option.variable}]"]
    return "\n".join(lines) + "\n"


def refused(environment: Mapping[str, str]) -> str | None:
    """The reason why a server must not start with this environment, or None."""
    try:
        settings.require_values(environment)
    except ValueError as error:
        named = max(
            (option for option in OPTIONS if str(error).startswith(option.variable)),
            key=lambda option: len(option.variable),
            default=None,
        )
        return str(error) if named is None else f"{named.flag}, {error}"
    return None


def fail(message: str) -> NoReturn:
    """End the program, as for a wrong argument."""
    print(f"dotllm: {message}", file=sys.stderr)
    raise SystemExit(2)
