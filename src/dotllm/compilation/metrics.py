"""The metrics of compilation, and how they leave the process that counts them.

vLLM's API server answers /metrics, but compiles happen in the engine core, and values of prometheus_client do not
cross processes. (They do in its multi-process mode, which is all or nothing: it changes vLLM's own metrics too, and
must be chosen before anything is imported.) So each process keeps plain numbers here and publishes them as one small
JSON file in a directory that all processes of a server know from their environment. Wherever /metrics is answered, a
`Collector` turns all files into one set of Prometheus metrics.

Numbers are plain floats under one lock. The manager's supervisor publishes them, at most a few times a second.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dotllm.errors import SpecError
from dotllm.temporary import make_directory

DIRECTORY_VARIABLE = "DOTLLM_METRICS_DIR"

Labels = tuple[str, ...]

_MANY = 1024  # the most steps that are not counted yet

SECONDS_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
MASK_BUCKETS = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1)

COUNTERS: dict[str, tuple[str, Labels]] = {
    "dotllm_compiles": ("Compiles finished, by kind of specification and outcome.", ("kind", "outcome")),
    "dotllm_refused": ("Specifications refused, by kind and the reason's name.", ("kind", "reason")),
    "dotllm_index_lookups": ("Look-ups of an index, by the cache level that answered.", ("level",)),
    "dotllm_evictions": ("Entries evicted, by cache level.", ("level",)),
    "dotllm_cache_entries_ignored": (
        "Stored entries ignored as damaged, foreign or newer, by level.",
        ("level",),
    ),
    "dotllm_writes": ("Entries written, by cache level and outcome (dropped: never stored).", ("level", "outcome")),
    "dotllm_store_failures": ("Failed calls to the shared store, by operation.", ("operation",)),
    "dotllm_mask_rows": ("Mask rows handed to the sampler.", ()),
    "dotllm_forced_tokens": ("Tokens of forced text that coalescence entered into requests.", ()),
    "dotllm_answers_closed": (
        "Answers changed by their limit (max_tokens, the model's length).",
        (),
    ),
    "dotllm_drafts_dropped": (
        "Draft tokens of constrained requests not verified, because the batch was too large.",
        (),
    ),
    "dotllm_preview_requests": ("Requests that a preview has seen, by what dotllm would do.", ("outcome", "code")),
    "dotllm_steps_saved": ("Forward steps that single requests did not need, because text was entered.", ()),
}


def _sum(_: Labels, a: float, b: float) -> float:
    return a + b


def _least(_: Labels, a: float, b: float) -> float:
    """The lower value: if a single process reports 0, that is worth an alert, whatever the others report."""
    return min(a, b)


def _cache_bytes(labels: Labels, a: float, b: float) -> float:
    """Bytes in memory belong to one process and are added. All processes share one directory on disk, and each reports
    its whole size."""
    return max(a, b) if labels == ("disk",) else a + b


GAUGES: dict[str, tuple[str, Labels, Callable[[Labels, float, float], float]]] = {
    "dotllm_queue_depth": ("Specifications waiting for a compile worker.", (), _sum),
    "dotllm_compiles_running": ("Compiles running now.", (), _sum),
    "dotllm_requests_waiting": ("Requests waiting for an index.", (), _sum),
    "dotllm_cache_bytes": ("Bytes of indexes in a cache, by level.", ("level",), _cache_bytes),
    "dotllm_cache_entries": ("Indexes in a cache, by level.", ("level",), _sum),
    "dotllm_pinned_index_bytes": ("Bytes of indexes that running requests pin beyond the cache.", (), _sum),
    "dotllm_store_available": (
        "1 while the shared store answers all processes, 0 while the circuit breaker of any process is open.",
        ("store",),
        _least,
    ),
}
"""The last field merges the values of two processes."""
HISTOGRAMS: dict[str, tuple[str, Labels, tuple[float, ...]]] = {
    "dotllm_compile_seconds": ("Seconds of one compile, first mask included.", ("kind",), SECONDS_BUCKETS),
    "dotllm_wait_seconds": ("Seconds from request to index, by the level that had it.", ("level",), SECONDS_BUCKETS),
    "dotllm_request_stall_seconds": (
        "Seconds that a request stalled for an index that was not ready when it was scheduled, by where it was needed.",
        ("where",),
        SECONDS_BUCKETS,
    ),
    "dotllm_load_seconds": ("Seconds to load an index, by level.", ("level",), SECONDS_BUCKETS),
    "dotllm_mask_seconds": ("Seconds to find the masks of one step's batch.", (), MASK_BUCKETS),
}


class Metrics:
    """Counters, gauges and histograms of one process. All methods are thread-safe and never raise on known names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, Labels], float] = {}
        self._gauges: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}  # one per bucket, then +Inf, then the sum
        self._steps: deque[tuple[float, int]] = deque()
        self._changed = False
        self._path: Path | None = None

    def add(self, name: str, *labels: str, amount: float = 1.0) -> None:
        """Count ``amount`` on a counter of `COUNTERS`; ``labels`` in its order."""
        key = (name, labels)
        with self._lock:
            self._counters[key] = self._counters.get(key, 0.0) + amount
            self._changed = True

    def set(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge of `GAUGES`."""
        key = (name, labels)
        with self._lock:
            if self._gauges.get(key) != value:
                self._gauges[key] = value
                self._changed = True

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Add one observation to a histogram of `HISTOGRAMS`."""
        with self._lock:
            self._observe(name, labels, value)

    def _observe(self, name: str, labels: Labels, value: float) -> None:
        buckets, key = HISTOGRAMS[name][2], (name, labels)
        counts = self._histograms.get(key)
        if counts is None:
            counts = self._histograms[key] = [0.0] * (len(buckets) + 2)
        counts[bisect_left(buckets, value)] += 1
        counts[-1] += value
        self._changed = True

    def step(self, seconds: float, rows: int) -> None:
        """The masks of a step have been found. They are counted when values are next read, because a step waits."""
        self._steps.append((seconds, rows))
        if len(self._steps) >= _MANY:
            self._count_steps()

    def _count_steps(self) -> None:
        rows = 0
        with self._lock, suppress(IndexError):
            while True:
                seconds, more = self._steps.popleft()
                self._observe("dotllm_mask_seconds", (), seconds)
                rows += more
        if rows:
            self.add("dotllm_mask_rows", amount=float(rows))

    def value(self, name: str, *labels: str) -> float:
        """Value of a counter or gauge (0 when never touched), or the number of observations of a histogram."""
        self._count_steps()
        key = (name, labels)
        with self._lock:
            if name in HISTOGRAMS:
                return sum(self._histograms.get(key, [0.0])[:-1])
            return self._counters.get(key, self._gauges.get(key, 0.0))

    def snapshot(self) -> dict[str, list[Any]]:
        """All values, as lists of [name, labels, value(s)] that JSON can hold."""
        self._count_steps()
        with self._lock:
            return {
                "counters": [[name, list(labels), value] for (name, labels), value in self._counters.items()],
                "gauges": [[name, list(labels), value] for (name, labels), value in self._gauges.items()],
                "histograms": [[name, list(labels), list(v)] for (name, labels), v in self._histograms.items()],
            }

    def publish(self) -> None:
        """Write the snapshot for a `Collector`, if there is a directory and anything has changed since the last one."""
        self._count_steps()
        directory = os.environ.get(DIRECTORY_VARIABLE)
        if not directory or not self._changed:
            return
        self._changed = False
        if self._path is None or self._path.parent != Path(directory):
            # Two managers may live in one process (tests, offline use), hence the object's id after the process's.
            self._path = Path(directory) / f"{os.getpid()}-{id(self):x}.json"
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(self.snapshot()), encoding="utf-8")
            temporary.replace(self._path)
        except OSError:
            self._changed = True  # the directory may come back; metrics never hurt a request


def shared_directory() -> Path:
    """The directory of this server's metrics. If there is none yet, it is made and put into the environment (for child
    processes)."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        directory = os.environ[DIRECTORY_VARIABLE] = str(make_directory("metrics"))
    return Path(directory)


def merge(snapshots: Sequence[Mapping[str, Any]]) -> dict[str, dict[tuple[str, Labels], Any]]:
    """Several processes' snapshots as one: {"counters" | "gauges" | "histograms": {(name, labels): value}}.

    Counts are added; each gauge has its own function (`GAUGES`)."""
    merged: dict[str, dict[tuple[str, Labels], Any]] = {"counters": {}, "gauges": {}, "histograms": {}}
    for snapshot in snapshots:
        for section, values in merged.items():
            for name, labels, value in snapshot.get(section, ()):
                key = (name, tuple(labels))
                if section == "histograms":
                    before = values.get(key)
                    values[key] = value if before is None else [a + b for a, b in zip(before, value, strict=True)]
                elif name in GAUGES and key in values:
                    values[key] = GAUGES[name][2](key[1], values[key], value)
                else:
                    values[key] = values.get(key, 0.0) + value
    return merged


# dotllm's metrics as a Prometheus collector, for the process that answers /metrics.
#
# ``register()`` is called by the vLLM plugin in API servers. prometheus_client is imported only here: the engine does
# not need it.


class Collector:
    """Merges what all processes have published in ``directory``. Every metric is exposed. A metric without labels is 0
    before its first event, so that dashboards and alerts can be written before traffic arrives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _snapshots(self) -> list[dict[str, Any]]:
        snapshots = []
        for path in sorted(self.directory.glob("*.json")):
            try:
                snapshots.append(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError):
                continue  # it is being replaced or removed; the next scrape has it
        return snapshots

    def collect(self) -> Iterator[Any]:
        """Called by prometheus_client at each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        merged = merge(self._snapshots())
        families: list[tuple[Any, Mapping[str, tuple[Any, ...]], str]] = [
            (CounterMetricFamily, COUNTERS, "counters"),
            (GaugeMetricFamily, GAUGES, "gauges"),
        ]
        for family_class, described, section in families:
            for name, (help_text, label_names, *_) in described.items():
                values = {labels: value for (n, labels), value in merged[section].items() if n == name}
                family = family_class(name, help_text, labels=label_names)
                for labels, value in sorted(values.items()) or ([((), 0.0)] if not label_names else []):
                    family.add_metric(labels, value)
                yield family
        for name, (help_text, label_names, buckets) in HISTOGRAMS.items():
            family = HistogramMetricFamily(name, help_text, labels=label_names)
            for (n, labels), counts in sorted(merged["histograms"].items()):
                if n == name:
                    family.add_metric(labels, _cumulative(buckets, counts), sum_value=counts[-1])
            yield family

    def describe(self) -> list[Any]:
        """No names to check for duplicates: registering must not scrape."""
        return []


def _cumulative(buckets: tuple[float, ...], counts: list[float]) -> list[tuple[str, float]]:
    """Prometheus wants "at most le" counts; we keep one count per bucket."""
    total = 0.0
    rows = []
    for bound, count in zip((*(str(b) for b in buckets), "+Inf"), counts[:-1], strict=True):
        total += count
        rows.append((bound, total))
    return rows


def register(registry: Any) -> Collector:
    """Add our metrics to ``registry`` (a prometheus_client CollectorRegistry), once; returns the collector."""
    for known in list(getattr(registry, "_collector_to_names", ())):
        if isinstance(known, Collector):
            return known
    collector = Collector(shared_directory())
    registry.register(collector)
    return collector


# The name under which /metrics counts a refusal, from a closed set.
#
# `SpecError.keyword` names the refused part, often in the user's own words: an undefined rule, an unknown field, the
# name of a Unicode property. As a label, each such word would create a time series that never goes away, and would show
# one customer's names to everyone who reads the metrics. So only dotllm's own words and those of the standards become
# labels. For all others the label is the class of the error. The error's message keeps the user's word.


_JSON_SCHEMA = frozenset(
    {"$schema", "$id", "$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "format", "pattern"}
    | {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired"}
    | {"multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"}
    | {"items", "additionalItems", "prefixItems", "contains", "minContains", "maxContains", "maxItems", "minItems"}
    | {"uniqueItems", "unevaluatedItems", "unevaluatedProperties", "properties", "patternProperties", "required"}
    | {"additionalProperties", "propertyNames", "maxProperties", "minProperties"}
    | {"order", "additional_properties", "whitespace", "whitespace_pattern", "number", "number_digits", "source"}
)
_REGEX = frozenset(
    {"regex", "anchor", "atomic group", "back-reference", "backtracking verb", "branch reset", "character class"}
    | {"conditional", "locale flag", "look-around", "POSIX class", "recursion", "repetition"}
    | {"\\G", "\\K", "\\R", "\\X", "\\C"}
)
_GRAMMARS = frozenset(
    {
        "grammar",
        "left recursion",
        "special token",
        "template",
        "flags",
        "start",
        "stop",
        "max_tokens",
        "temperature",
        "lazy",
    }
    | {"%json", "%regex", "%ignore", "%import", "%declare", "%override", "%extend", "%lark", "%llguidance"}
    | {"%grammar_options", "allow_invalid_utf8", "end token", "(=", "::", "@", "[]", "\\x", "unordered"}
)
_STRUCTURAL_TAGS = frozenset(
    {"structural_tag", "structures", "schema", "json_schema", "any_order", "at_least_one", "begin", "content"}
    | {"elements", "end", "excludes", "loop", "max", "max_chars", "max_whitespace_cnt", "min", "rules", "separator"}
    | {"finite_numbers", "stop_after_first", "style", "syntax", "tags", "token", "triggers", "value"}
)
_OURS = frozenset(
    {"budget", "choice", "json_object", "length", "memory", "nesting", "size", "steps", "time"}
    | {"stop_token_ids", "tokens_left", "vocabulary"}
)

KNOWN = _JSON_SCHEMA | _REGEX | _GRAMMARS | _STRUCTURAL_TAGS | _OURS


def reason(error: SpecError) -> str:
    """The label of a refusal: its keyword if that is a `KNOWN` word, else the name of its class without "Error"."""
    return error.keyword if error.keyword in KNOWN else type(error).__name__.removesuffix("Error")
