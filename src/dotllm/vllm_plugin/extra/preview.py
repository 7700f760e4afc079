"""Preview: vLLM's own backend answers, and dotllm says for each request whether it would refuse it.

``dotllm serve --dotllm-preview`` is for users who consider switching (docs/moving.md). The bodies of requests are
copied, as they come, to a separate process that runs ``dotllm check --requests -``. So a check neither uses the
server's interpreter nor can make the server fail, and its counts are those of that command. If requests come faster
than they are checked, those that do not fit into the queue are counted but not checked. The log has a line for each
request that would be refused, and ``dotllm_preview_requests_total`` counts all requests, by outcome and code.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dotllm.compilation.metrics import Metrics
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.tiers import VARIABLE

logger = logging.getLogger(__name__)

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
MOST_WAITING, MOST_BYTES = 1000, 64 << 20
"""The limits of requests that wait to be checked, and of their bodies."""
NOT_CHECKED, FAILED = "not_checked", "failed"
"""Outcomes in addition to those of the command."""
_HANGS_AFTER, _STARTS_WITHIN = 120.0, 900.0
_MOST_FAULTS, _NICENESS = 3, 10
_TOKENIZER = "--tokenizer"
_FLAGS = ("disable_any_whitespace", "disable_additional_properties")

HOOK = Hook(
    summary="with --dotllm-preview: what would be refused is logged and counted, while vLLM's backend answers",
    where=lambda: settings.value(settings.PREVIEW) == "on",
    without_it="a server has no preview",
)


class Preview:
    """Checks the bodies of requests in a separate process."""

    def __init__(self, command: list[str]) -> None:
        self.metrics = Metrics()
        self._command = command
        self._waiting: queue.Queue[tuple[str, bytes]] = queue.Queue(MOST_WAITING)
        self._bytes = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._faults = 0  # in a row
        self._has_answered = False

    def take(self, path: str, body: bytes) -> None:
        """Queue a request to be checked. Returns at once."""
        with self._lock:
            fits = self._bytes + len(body) <= MOST_BYTES
            if fits:
                try:
                    self._waiting.put_nowait((path, body))
                except queue.Full:
                    fits = False
                else:
                    self._bytes += len(body)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dotllm-preview", daemon=True)
                self._thread.start()
        if not fits:
            self._count({"outcome": NOT_CHECKED})

    def finish(self) -> None:
        """Wait until every request that was taken has been checked."""
        self._waiting.join()

    def _run(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        while True:
            path, body = self._waiting.get()
            try:
                process = process or self._started()
                self._count(self._checked(process, path, body))
                self._faults = 0
            except Exception as error:  # whatever it is, the server goes on
                logger.warning("dotllm preview: a request to %s was not checked (%s)", path, error)
                self._count({"outcome": FAILED})
                self._faults += 1
                if process is not None:
                    process.kill()
                    process.wait()
                process, self._has_answered = None, False
            finally:
                with self._lock:
                    self._bytes -= len(body)
                self.metrics.publish()
                self._waiting.task_done()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._faults >= _MOST_FAULTS:
            raise RuntimeError("the checking process has failed too often; restart the server to check again")
        if self._faults and _TOKENIZER in self._command:  # it may need more than its name to be loaded
            self._command = self._command[: self._command.index(_TOKENIZER)]
        environment = {**os.environ, "DOTLLM_PREVIEW": "off", "DOTLLM_DEFAULT_BACKEND": "dotllm"}
        environment.pop(VARIABLE, None)
        environment["CUDA_VISIBLE_DEVICES"] = ""
        pipe = subprocess.PIPE
        process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
        return process

    def _checked(self, process: subprocess.Popen[bytes], path: str, body: bytes) -> dict[str, Any]:
        """What the process says about a request. Line breaks in JSON are white space, so one line holds any body."""
        assert process.stdin is not None and process.stdout is not None
        line = body.replace(b"\n", b" ").replace(b"\r", b" ")
        hangs = threading.Timer(_HANGS_AFTER if self._has_answered else _STARTS_WITHIN, process.kill)
        hangs.daemon = True
        hangs.start()
        try:
            process.stdin.write(b'{"path": %s, "body": %s}\n' % (json.dumps(path).encode(), line or b"null"))
            process.stdin.flush()
            said = process.stdout.readline()
        finally:
            hangs.cancel()
        if not said:
            raise RuntimeError(f"the checking process has ended with status {process.wait()}")
        reply: dict[str, Any] = json.loads(said)
        self._has_answered = True
        if reply["outcome"] == "refused":
            logger.warning("dotllm preview: %s would be refused (%s): %s", path, reply["code"], reply["message"][:1000])
        return reply

    def _count(self, answer: dict[str, Any]) -> None:
        self.metrics.add("dotllm_preview_requests", answer["outcome"], answer.get("code", ""))


def command(engine: Any) -> list[str]:
    """The command that checks requests as a server of this engine would."""
    vllm_config = getattr(engine, "vllm_config", None)
    arguments = [sys.executable, "-m", "dotllm", "check", "--requests", "-", "--json"]
    structured = getattr(vllm_config, "structured_outputs_config", None)
    arguments += [f"--{flag.replace('_', '-')}" for flag in _FLAGS if getattr(structured, flag, False)]
    tokenizer = getattr(getattr(vllm_config, "model_config", None), "tokenizer", None)
    return [*arguments, _TOKENIZER, str(tokenizer)] if tokenizer else arguments


class Copying:
    """ASGI middleware that copies the bodies of requests to a `Preview`."""

    def __init__(self, app: Callable[..., Awaitable[None]], preview: Preview | None = None) -> None:
        self._app, self._preview = app, preview

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Serve one request."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or scope.get("method") != "POST" or not path.endswith(PATHS):
            await self._app(scope, receive, send)
            return
        if self._preview is None:
            self._preview = Preview(command(getattr(scope["app"].state, "engine_client", None)))
        preview, parts = self._preview, list[bytes]()

        async def copying() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    preview.take(path, b"".join(parts))
            return message

        await self._app(scope, copying, send)


@HOOK.replaces("vllm.plugins.endpoint_plugins.interface:attach_endpoint_plugins")
def _attach_endpoint_plugins(app: Any, supported_tasks: Any, *, original: Original) -> None:
    original(app, supported_tasks)
    app.add_middleware(Copying)
