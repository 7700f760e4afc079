"""`dotllm bench-structured` against a server of ten lines: what it sends, times, judges, writes and says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dotllm.bench import report, servers, workloads
from dotllm.bench.client import BenchRequest, HttpTarget, Sample
from dotllm.bench.metrics import percentiles, summarise, tpot_ms
from dotllm.bench.plan import Burst, Measurement, Pair, Plan, figures
from dotllm.bench.workloads import Constraint
from dotllm.cli import bench_structured
from dotllm.demo.server import PROGRAM

STEP_S = 0.002


def answer(body: dict[str, Any]) -> list[str]:
    """Tokens of a reply: right for a choice, wrong for every schema, filler for a twin."""
    if "structured_outputs" in body and "choice" in body["structured_outputs"]:
        return list(body["structured_outputs"]["choice"][0])
    if "response_format" in body:
        return list('{"a": 1}')
    return ["x"] * body["max_tokens"]


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "m"}]})


async def health(_: web.Request) -> web.Response:
    return web.Response()


class Server:
    """Streams `answer`, one token every ``STEP_S`` seconds; refuses regexes with 400; remembers the bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """The one route."""
        body = await http.json()
        self.bodies.append(body)
        if "regex" in body.get("structured_outputs", {}):
            return web.json_response({"error": {"message": "no regex here"}}, status=400)
        response = web.StreamResponse()
        await response.prepare(http)
        pieces = answer(body)
        for i, piece in enumerate(pieces):
            await asyncio.sleep(STEP_S)
            stop = "stop" if i == len(pieces) - 1 else None
            choice = {"index": 0, "delta": {"content": piece}, "finish_reason": stop}
            await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        usage = {"choices": [], "usage": {"completion_tokens": len(pieces)}}
        await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        return response


async def serving(server: Server, port: int = 0) -> AsyncIterator[str]:
    """The server's address while it runs."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", server.chat)
    application.router.add_get("/v1/models", models)
    application.router.add_get("/health", health)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def measure(plan: Plan) -> tuple[list[dict[str, Any]], Server, int]:
    """Run a plan on the small server. Returns the points, the server, and the number of calls of ``done``."""
    server, calls = Server(), []

    async def run() -> list[dict[str, Any]]:
        async for url in serving(server):
            target = HttpTarget(url, "m")
            try:
                return await Measurement(plan, target, lambda: calls.append(1)).run()
            finally:
                await target.close()
        return []

    return asyncio.run(run()), server, len(calls)


@pytest.fixture(scope="module")
def measured() -> tuple[list[dict[str, Any]], Server, int, Plan]:
    """One run of everything."""
    plan = Plan(workloads=("choice", "closed", "regex"), concurrency=(2,), per_slot=1, max_tokens=64, ttft_schemas=3)
    return (*measure(plan), plan)


def test_answers_are_judged(measured: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """Choices are right and schemas wrong. Refused constraints are named and not counted as measured."""
    by_name = {point.get("workload"): point for point in measured[0]}
    assert by_name["choice"]["valid_share"] == 1.0
    assert by_name["closed"]["valid_share"] == 0.0
    assert "breaks the schema" in by_name["closed"]["faults"][0]["fault"]
    assert "no regex here" in by_name["regex"]["skipped"]


def test_twins_have_the_same_tokens(measured: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """ignore_eos alone makes the numbers of output tokens equal (min_tokens slows steps). TPOT is the server's step."""
    points, server, _, _ = measured
    for point in points:
        if "twin" in point:
            assert point["twin"]["output_tokens"] == point["output_tokens"]
            assert point["twin"]["judged"] == 0
            assert STEP_S * 1e3 * 0.9 < point["tpot_ms"] < STEP_S * 1e3 * 1000  # (the machine may be busy)
    twins = [body for body in server.bodies if body.get("ignore_eos")]
    assert twins
    assert not any("min_tokens" in body for body in twins)


def test_never_seen_schemas_are_new(measured: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """Each fresh schema is sent twice: once new, once cached."""
    points, server, _, _ = measured
    assert points[-1]["counts"] == {"new": 3, "cached": 3, "none": 6}
    singles = [
        json.dumps(b["response_format"]) for b in server.bodies if b["max_tokens"] == 1 and "response_format" in b
    ]
    assert len(singles) == 6
    assert len(set(singles)) == 3


def test_progress_counts_requests(measured: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """`done` is called for each request; the plan's estimate is an upper bound close to their number."""
    _, server, calls, plan = measured
    assert calls == len(server.bodies)
    assert calls <= plan.steps()


@pytest.fixture(scope="module")
def paired() -> tuple[list[dict[str, Any]], Server, int, Plan]:
    """A run with short pairs."""
    plan = Plan(workloads=("closed",), concurrency=(3,), pairs=4, max_tokens=64, ttft_schemas=0)
    return (*measure(plan), plan)


def test_short_pairs_take_turns(paired: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """Bursts of three: constrained and twin, twin and constrained, … Twins are as long as the last constrained ones."""
    _, server, calls, plan = paired
    six = server.bodies[3 + 6 :]  # after the bodies that warm up the server, and each constraint once
    kinds = ["".join("c" if "response_format" in body else "t" for body in six[i : i + 3]) for i in range(0, 24, 3)]
    assert kinds == ["ccc", "ttt", "ttt", "ccc", "ccc", "ttt", "ttt", "ccc"]
    assert {body["max_tokens"] for body in six if "response_format" not in body} == {len('{"a": 1}')}
    assert calls == len(server.bodies) == plan.steps()


@pytest.mark.parametrize("pairs", [0, 4])
def test_each_request_can_have_a_constraint_of_its_own(pairs: int) -> None:
    """No constraint is sent twice, and none is sent to warm up."""
    plan = Plan(workloads=("closed", "regex"), concurrency=(3,), pairs=pairs, fresh=True, max_tokens=64, ttft_schemas=0)
    points, server, calls = measure(plan)
    fields = [body.get("response_format") or body.get("structured_outputs") for body in server.bodies]
    texts = [json.dumps(field) for field in fields if field]
    assert len(texts) == len(set(texts)) == 2 * plan.requests(3)
    assert all(point["fresh"] for point in points)
    assert calls == len(server.bodies) <= plan.steps()


def test_a_file_is_not_made_anew(tmp_path: Path) -> None:
    """The schemas of a file are sent unchanged."""
    (tmp_path / "schemas.jsonl").write_text('{"type": "object"}\n')
    name = str(tmp_path / "schemas.jsonl")
    with pytest.raises(ValueError, match=r"only closed, bounded, .* can be made anew"):
        measure(Plan(workloads=(name,), concurrency=(1,), fresh=True, ttft_schemas=0))


def test_the_ratio_of_short_pairs_is_their_median(paired: tuple[list[dict[str, Any]], Server, int, Plan]) -> None:
    """The small server takes the same time for both. All answers are judged; one slow pair of three has no effect."""
    (point,) = paired[0]
    assert (point["pairs"], point["requests"], point["twin"]["requests"], point["judged"]) == (4, 12, 12, 12)
    assert point["tpot_ratio_quartiles"][0] <= point["tpot_ratio"] <= point["tpot_ratio_quartiles"][1]
    assert 1 / 3 < point["tpot_ratio"] < 3  # other tests run at the same time
    bursts = [Pair(Burst([sample([0.0, seconds], 11)], 1), Burst([sample([0.0, 1.0], 11)], 1)) for seconds in (1, 1, 9)]
    assert figures(bursts)["tpot_ratio"] == 1


def test_results_are_written(measured: tuple[list[dict[str, Any]], Server, int, Plan], tmp_path: Path) -> None:
    """JSON, PNG, HTML and tables, also with skipped points."""
    points = [{"variant": "v", **point} for point in measured[0]]
    report.write(tmp_path / "results.json", {"model": "m"}, points)
    assert len(json.loads((tmp_path / "results.json").read_text())["points"]) == len(points)
    report.show(points)
    images = report.draw(points, tmp_path)
    assert {image.name for image in images} >= {"tpot_ratio.png", "ttft.png"}
    report.page(tmp_path / "report.html", {"model": "<m>"}, "table", images)
    assert "&lt;m&gt;" in (tmp_path / "report.html").read_text()


def sample(chunks: list[float], tokens: int) -> Sample:
    """A finished unconstrained sample."""
    return Sample(BenchRequest(), 0.0, chunks[-1], chunks, tokens, finish_reason="length")


def test_tpot_weighs_tokens() -> None:
    """Total decode time over decoded tokens, also where a chunk has several tokens."""
    assert tpot_ms([sample([1.0, 2.0], 11), sample([1.0, 4.0], 2)]) == pytest.approx(1e3 * 4 / 11)
    assert tpot_ms([sample([1.0], 1)]) is None


def test_errors_are_counted_not_measured() -> None:
    """A failed request adds to the errors and to no other figure."""
    bad = Sample(BenchRequest(), 0.0, 1.0, error="HTTP 500")
    figures = summarise([sample([0.5, 1.0], 6), bad], wall=2.0)
    assert (figures["errors"], figures["output_tokens"], figures["requests_per_s"]) == (1, 6, 0.5)


def test_percentiles() -> None:
    """Percentiles are scaled, and empty without values."""
    assert percentiles([]) == {}
    assert percentiles(range(101), scale=1)["p90"] == 90


@pytest.mark.parametrize("name", [*workloads.SETS, "regex", "choice"])
def test_salted_sets_differ_in_every_constraint(name: str) -> None:
    """A salt changes every constraint of the set, and no two constraints are equal."""
    plain, salted = workloads.load(name), workloads.load(name, "abc")
    assert len(plain) == len(salted)
    for one, other in zip(plain, salted, strict=True):
        assert one.value != other.value
    assert len({json.dumps(c.value) for c in plain}) == len(plain)


def test_schemas_of_a_file(tmp_path: Path) -> None:
    """A JSONL file holds schemas, or records that contain one."""
    path = tmp_path / "s.jsonl"
    path.write_text('{"type": "integer"}\n{"name": "n", "schema": {"type": "null"}}\n')
    values = [c.value for c in workloads.load(str(path))]
    assert sorted(v["type"] for v in values) == ["integer", "null"]
    with pytest.raises(ValueError, match="neither one of"):
        workloads.load("no such set")


@pytest.mark.parametrize(
    ("constraint", "right", "wrong"),
    [
        (Constraint("", "regex", "a+"), "aa", "ab"),
        (Constraint("", "choice", ["x", "xy"]), "xy", "y"),
        (Constraint("", "json_schema", {"type": "integer"}), "3", '"3"'),
        (Constraint("", "json_schema", {"type": "integer"}), "3", "3,"),
        (Constraint("", "json_schema", {"type": "integer"}), "1.0e2", "1.5e0"),
        (Constraint("", "json_schema", {"multipleOf": 0.01, "enum": [0.14, 1e300, 0.145]}), "0.140", "0.145"),
        (
            Constraint("", "json_schema", {"exclusiveMinimum": 0.5}),
            "1.0e9999999999999999999",
            "-1.0e9999999999999999999",
        ),
        (Constraint("", "json_schema", {"multipleOf": 0.5, "minimum": 1}), "1.0e300", "-1.0e300"),
    ],
)
def test_judges(constraint: Constraint, right: str, wrong: str) -> None:
    """The judge of each kind accepts the right text and rejects the wrong one."""
    assert constraint.fault(right) is None
    assert constraint.fault(wrong)


def test_variants_are_data(tmp_path: Path) -> None:
    """Both groups are read; vLLM's own backends run without our plugin; the error for a wrong name lists all names."""
    assert [v.name for v in servers.read("engines")] == ["dotllm", "xgrammar", "guidance", "outlines"]
    assert servers.PROGRAMS[servers.read("engines", ["guidance"])[0].program] != PROGRAM
    assert servers.read("ablations")[0].flags == ()
    assert [v.name for v in servers.read("engines") if not v.compact] == ["outlines"]
    with pytest.raises(ValueError, match="no group"):
        servers.read("nothing")
    with pytest.raises(ValueError, match="dotllm, xgrammar"):
        servers.read("engines", ["xgramar"])


QUICK = ["--workloads", "choice,closed", "--concurrency", "2", "--per-slot", "1", "--max-tokens", "16", "--ttft", "0"]


def test_a_server_that_is_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> int:
        status = -1
        async for url in serving(Server()):
            arguments = ["--url", url, *QUICK, "--out", str(tmp_path)]
            status = await asyncio.to_thread(bench_structured.main, arguments)
        return status

    assert asyncio.run(run()) == 1  # the answers do not match their schemas
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["about"]["model"] == "m"
    shares = {point["workload"]: point["valid_share"] for point in results["points"]}
    assert shares == {"choice": 1, "closed": 0} and "choice" in (tmp_path / "report.html").read_text()
    assert "plots written" in capsys.readouterr().out


def test_servers_that_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines take turns; one that does not start is in the report with the end of its log."""
    monkeypatch.setattr(servers, "PROGRAMS", {"small": ("-m", "tests.bench.test_structured")})
    small = {"program": "small", "environment": {}}
    variants = [{"name": "new flag", "flags": ["--new"], **small}, {"name": "small", "flags": [], **small}]
    (tmp_path / "variants.json").write_text(json.dumps({"engines": variants}))
    known = ["--compare", "--model", "m", "--variants-file", str(tmp_path / "variants.json"), "--out", str(tmp_path)]
    assert bench_structured.main([*known, *QUICK]) == 1
    dead, *measured, started = json.loads((tmp_path / "results.json").read_text())["points"]
    assert dead["variant"] == "new flag" and "status 3" in dead["skipped"] and "no option --new" in dead["skipped"]
    assert [point["workload"] for point in measured] == ["choice", "closed"] and started["start_s"] > 0
    assert "no option --new" in (tmp_path / "new-flag.log").read_text()


def test_prompts_repeat_with_the_seed() -> None:
    """Two runs of one plan send the same prompts."""

    def prompts() -> list[str]:
        measurement = Measurement(Plan(seed=5), target=None)  # type: ignore[arg-type]
        return [measurement._prompt() for _ in range(3)]

    assert prompts() == prompts()
    assert len(set(prompts())) == 3


async def main(arguments: list[str]) -> None:
    """Serve as vLLM's command line says."""
    if "--new" in arguments:
        print("no option --new")
        sys.exit(3)
    async for _ in serving(Server(), int(arguments[arguments.index("--port") + 1])):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv))
