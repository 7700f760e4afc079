"""Feeds random input to everything that reads untrusted input, for a given time.

    python -m tests.fuzz --minutes 10 [--targets regexes,files] [--seed 1] [--findings FOLDER]
    python -m tests.fuzz --one regexes 17

The name of a target and a number fully determine a case. Cases run in a child process, so crashes and endless loops
are findings, too. A finding is a file with the command that repeats it and the traceback. The exit status is 1 if
there are findings.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
HANGS_AFTER_S = 120.0
TURN_S = 20.0
"""the longest turn of a target before the next one's"""


def case(target: str, seed: int) -> None:
    """Run one case; a finding is raised."""
    from tests.fuzz import targets

    targets.TARGETS[target](Random(f"{target}/{seed}"))


def command(target: str, seed: int) -> str:
    return f"python -m tests.fuzz --one {target} {seed}"


def report(findings: Path, target: str, seed: int, what: str) -> None:
    """Write a finding to a file of its own."""
    findings.mkdir(parents=True, exist_ok=True)
    (findings / f"{target}-{seed}.txt").write_text(f"{command(target, seed)}\n\n{what}\n")
    print(f"FINDING {target} {seed}: {what.strip().splitlines()[-1][:300]}", flush=True)


def child(findings: Path) -> None:
    """Read cases from stdin, and answer each with a line."""
    sys.setrecursionlimit(1000)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        target, seed = line.split()
        try:
            case(target, int(seed))
        except BaseException:
            report(findings, target, int(seed), traceback.format_exc())
            answers.write("finding\n")
        else:
            answers.write("ok\n")


class Child:
    """A process that runs cases."""

    def __init__(self, findings: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--child", "--findings", str(findings)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def run(self, target: str, seed: int) -> str:
        """Returns "ok", "finding", "hangs", or how the process died."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{target} {seed}\n")
            self.process.stdin.flush()
            answer = self._answer()
        except queue.Empty:
            self.close()
            return "hangs"
        except BrokenPipeError:
            answer = ""
        return answer or f"the process ended with status {self.process.wait()}"

    def _answer(self) -> str:
        """The next line. Raises `queue.Empty` after `HANGS_AFTER_S` of CPU time, or ten times as much wall time:
        other programs may use the cores."""  # noqa: DOC501
        used, until = self._cpu_s(), time.monotonic() + 10 * HANGS_AFTER_S
        while True:
            try:
                return self.lines.get(timeout=1)
            except queue.Empty:
                if self._cpu_s() - used > HANGS_AFTER_S or time.monotonic() > until:
                    raise

    def _cpu_s(self) -> float:
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except FileNotFoundError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def run(minutes: float, targets: list[str], first: int, findings: Path) -> int:
    """Fuzz for ``minutes``; returns the number of findings."""
    until = time.monotonic() + 60 * minutes
    seconds = min(TURN_S, 60 * minutes / len(targets))
    done = dict.fromkeys(targets, 0)
    found = dict.fromkeys(targets, 0)
    one = Child(findings)
    while time.monotonic() < until:
        for target in targets:
            turn = min(until, time.monotonic() + seconds)
            while time.monotonic() < turn:
                seed = first + done[target]
                answer = one.run(target, seed)
                done[target] += 1
                if answer == "ok":
                    continue
                found[target] += 1
                if answer != "finding":
                    report(findings, target, seed, answer)
                    one = Child(findings)
        print(
            " ".join(f"{target} {done[target]}" + f" ({found[target]}!)" * bool(found[target]) for target in targets),
            flush=True,
        )
    one.close()
    return sum(found.values())


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--targets", default="")
    parser.add_argument("--seed", type=int, default=None, help="the first number (default: by the clock)")
    parser.add_argument("--findings", type=Path, default=ROOT / ".cache" / "fuzz")
    parser.add_argument("--one", nargs=2, metavar=("TARGET", "SEED"))
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        child(options.findings)
    elif options.one:
        case(options.one[0], int(options.one[1]))
    else:
        from tests.fuzz import targets

        chosen = options.targets.split(",") if options.targets else list(targets.TARGETS)
        first = options.seed if options.seed is not None else int(time.time())
        sys.exit(run(options.minutes, chosen, first, options.findings) > 0)
