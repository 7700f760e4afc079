"""The servers of twins: one plain, one ours, with the same stand-in model and the same flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import dotllm
from dotllm.demo import model
from tests.serve import api_model, model_classes, zygote

NAME = "twin"
SHORT = '{"temperature": 0, "max_new_tokens": 12}'
"""Makes answers short and greedy unless a request says otherwise."""
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # sleep, wake, pause, and other developer routes
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",
    "VLLM_ENABLE_COHERE_API": "1",
    "DOTLLM_DISK_BYTES": "0",
    "PYTHONHASHSEED": "0",  # (one error message lists a set)
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # makes both add in the same order
}
PLAIN_VLLM = Path(dotllm.__file__).with_name("bench") / "plain_vllm.py"
"""vLLM's command line. (Importing it would change this process.)"""
PLAIN = {"VLLM_PLUGINS": ""}
"""No plugins, unless dotllm is imported."""


class Kind(NamedTuple):
    """A kind of model."""

    make: Callable[[Path, Path], Any]
    """Makes the model in a folder, from the demo's."""
    flags: tuple[str, ...]
    cases: tuple[str, ...]
    """Names of files with cases."""


def _generative(folder: Path, demo: Path) -> None:
    api_model.make(folder, demo)


def _adaptable(folder: Path, demo: Path) -> None:
    model_classes.make(folder, demo, "LoRA")


def _labels(*names: str) -> Callable[[Path, Path], None]:
    def make(folder: Path, demo: Path) -> None:
        model_classes.make(folder, demo, "LoRA")  # (a plain model, in spite of its name)
        file = folder / "config.json"
        labels = {"num_labels": len(names), "id2label": dict(enumerate(names))}
        config = json.loads(file.read_text()) | {"architectures": ["LlamaForSequenceClassification"], **labels}
        file.write_text(json.dumps(config | {"label2id": {name: at for at, name in enumerate(names)}}))

    return make


def _audio(folder: Path, demo: Path) -> None:
    model_classes.make(folder, demo, "audio")


def _plain(folder: Path, demo: Path) -> None:
    folder.symlink_to(demo.resolve(), target_is_directory=True)


POOLING = ("--runner", "pooling", "--max-model-len", "512")
UNSAVED = ("--load-format", "dummy")
WRITING = ("--max-model-len", "1024", "--override-generation-config", SHORT)
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
LABELS = ("calm", "annoyed", "furious")
KINDS: dict[str, Kind] = {
    "generate": Kind(
        _generative,
        (*WRITING, *TOOLS, "--default-chat-template-kwargs", '{"enable_thinking": false}', "--enable-scale-out",
         "--enable-tokenizer-info-endpoint", "--enable-server-load-tracking", "--enable-prompt-tokens-details"),
        ("all", "states", "tokens", "generate", "cohere"),
    ),
    "LoRA": Kind(
        _adaptable, (*WRITING, *UNSAVED, "--enable-lora", "--max-loras", "2", "--max-lora-rank", "8"), ("all", "states", "lora")
    ),
    "embed": Kind(_plain, (*POOLING, "--convert", "embed"), ("all", "states", "tokens", "embed")),
    "cross-encoder": Kind(_labels("relevant"), (*POOLING, *UNSAVED), ("all", "states", "tokens", "score")),
    "classify": Kind(_labels(*LABELS), (*POOLING, *UNSAVED), ("all", "states", "tokens", "classify")),
    "reward": Kind(
        _labels(*LABELS), (*POOLING, *UNSAVED, "--pooler-config", '{"task": "token_classify"}'), ("all", "states", "reward")
    ),
    "audio": Kind(_audio, (*UNSAVED, "--max-model-len", "448", "--override-generation-config", SHORT), ("all", "states", "audio")),
}  # fmt: skip


ONLY_SERVERS = frozenset({
    "--enable-scale-out", "--enable-tokenizer-info-endpoint", "--enable-server-load-tracking",
})  # fmt: skip
"""Flags that the batch runner does not have."""


class Twin(zygote.Server):
    """A server that may run plain vLLM's command. With ``STARTS=real``, both start the way users start them."""

    def __init__(self, made: Path, log: Path, kind: Kind, *, is_ours: bool) -> None:
        self._is_ours = is_ours
        super().__init__(made, log, name=NAME, flags=kind.flags, environment=ENVIRONMENT)

    def _start(self, output: IO[bytes], environment: Mapping[str, str]) -> Any:
        if not self._is_ours:
            self.command = plain(self.command)
            return zygote.popen(self.command, output, {**environment, **PLAIN}, how=("plain",))
        return super()._start(output, environment)


def plain(command: list[str]) -> list[str]:
    """vLLM's own command in place of ``python -m dotllm …``: a process that imports nothing of ours."""
    at = command.index("-m")
    return [*command[:at], str(PLAIN_VLLM), *command[at + 2 :]]


def made(name: str, folder: Path) -> Path:
    """The stand-in model of a kind, in ``folder``."""
    demo, place = model.make(folder / "demo"), folder / name
    if not place.exists():
        KINDS[name].make(place, demo)
    return place


@contextmanager
def twins(name: str, folder: Path) -> Iterator[tuple[Twin, Twin]]:
    """Both servers of a kind: plain vLLM, ours. Their models and logs are in ``folder``."""
    place = made(name, folder / "models")
    with ExitStack() as stack:
        pair = [
            stack.enter_context(Twin(place, folder / f"{name}-{log}.log", KINDS[name], is_ours=is_ours))
            for log, is_ours in (("plain", False), ("ours", True))
        ]
        for server in pair:
            server.wait()
        yield pair[0], pair[1]
        for server in pair:
            assert server.healthy(), f"the server did not survive:\n{server.log_tail(60)}"
