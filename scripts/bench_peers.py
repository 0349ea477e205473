"""Compares delayq with its peers: the same work, one after the other in one run, on a throwaway server.

    make bench-peers                                all of them, medians of 3 rounds
    make bench-peers ARGS="--only huey,rq --quick"  some of them, with a tenth of the messages
    make bench-peers ARGS=--docs                    write the tables into the handbook

Each peer has its own environment in .venv/peers, created when it is first needed, and an adapter in scripts/peers that
configures it as its guide advises for many short tasks. scripts/peers/measuring.py times all adapters. Exits with 1 if
delayq missed a goal or could not be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import redis
from measure import pages
from measure.options import parser
from measure.report import Setting
from peers.adapters import ADAPTERS, FailedError, python_of, run_adapter
from peers.delay_proxy import DelayProxy
from peers.figures import Row, as_json, markdown, multiples, remarks, sorted_rows, tables, verdict
from peers.roster import PEERS, RATES
from rich.console import Console

from delayq.testing.redis_server import RedisServer, find_program

PAGE = pages.PERFORMANCE
MARK = "peers"
"""The marks around the table."""
WIDTH = 110
"""Width of the table without a terminal."""
QUICK_DIVISOR = 10
"""Divides the counts in a quick run."""
DELAYED, DELAYED_QUICKLY = 500, 100
"""Messages whose lateness is measured."""
SCHEDULED = 6_250
"""Delayed messages whose memory is measured; they fill the hash tables as much as 100,000 do."""
COSTS = {"flow": 1_000, "slow": 1_000, "idle": 10}
"""Messages whose cost to the server is measured, and the seconds that an idle worker is."""
PRODUCED = 1_600
"""Messages of the producers."""
DELAYS = {"near": 0.001, "far": 0.005}
"""Seconds each way between them and the server."""
PAYLOAD = 64
"""Bytes of a text of 62 characters in JSON."""


class Bench:
    """Runs each kind of work on an emptied server."""

    def __init__(self, url: str, *, quick: bool) -> None:
        """Measure on the server at a URL; a quick run uses fewer messages and is less exact."""
        self.url = url
        self.quick = quick
        self.client = redis.Redis.from_url(url)

    def measure(self, row: Row, work: str) -> None:
        """Do one kind of work; record the result or the failure."""
        try:
            self._measure(row, work)
        except FailedError as error:
            row.failures[work] = str(error)

    def _measure(self, row: Row, work: str) -> None:
        python, adapter = python_of(row.peer), ADAPTERS / f"{row.peer.name}_peer.py"
        self.client.flushall()
        if work in RATES:
            n = row.peer.counts[RATES.index(work)] // (QUICK_DIVISOR if self.quick else 1)
            row.rates[work].append(n / _seconds(run_adapter(python, adapter, work, n, self.url)))
        elif work == "late":
            n = DELAYED_QUICKLY if self.quick else DELAYED
            row.late += _numbers(run_adapter(python, adapter, work, n, self.url), "late", n)
        elif work in DELAYS:
            n = PRODUCED // (QUICK_DIVISOR if self.quick else 1)
            with DelayProxy(self.url, DELAYS[work]) as proxy:
                row.day[work] = n / _seconds(run_adapter(python, adapter, "producers", n, proxy.url))
        elif work in COSTS:
            n = COSTS[work] // (QUICK_DIVISOR if self.quick else 1)
            reply = run_adapter(python, adapter, work, n, self.url)
            if work == "idle":
                row.day["idle"] = _number(reply, "commands") / n
            else:
                row.day[f"{work}_cpu"] = 1e6 * _number(reply, "cpu") / n
                row.day[f"{work}_commands"] = _number(reply, "commands") / n
        else:
            before = self.client.info("memory")["used_memory"]
            run_adapter(python, adapter, work, SCHEDULED, self.url)
            row.bytes = (self.client.info("memory")["used_memory"] - before) / SCHEDULED - PAYLOAD


def _seconds(reply: dict[str, Any]) -> float:
    if not (seconds := _number(reply, "seconds")):
        raise FailedError("done in no time")
    return seconds


def _number(reply: dict[str, Any], name: str) -> float:
    value = reply.get(name)
    if not isinstance(value, int | float) or value < 0:
        raise FailedError(f"no {name} in its reply {str(reply)[:80]}")
    return float(value)


def _numbers(reply: dict[str, Any], name: str, n: int) -> list[float]:
    values = reply.get(name)
    if not isinstance(values, list) or len(values) != n or not all(isinstance(value, int | float) for value in values):
        raise FailedError(f"no {n} numbers {name} in its reply {str(reply)[:80]}")
    return values


def measure(bench: Bench, rows: list[Row], rounds: int, log: Callable[[str], None]) -> None:
    """Measure all peers round by round, so that a slow minute affects them all; all but the rates only once."""
    for row in rows:
        try:
            python_of(row.peer)
        except FailedError as error:
            row.failures["setup"] = str(error)
    for turn in range(rounds):
        for row in (row for row in rows if "setup" not in row.failures):
            for work in RATES if turn else (*RATES, *row.peer.once):
                if work not in row.failures:  # not repeated after a failure
                    log(f"round {turn + 1} of {rounds}: {row.peer.name}, {work}")
                    bench.measure(row, work)


def read_options(words: list[str] | None) -> argparse.Namespace:
    """Return the options, checked; exit with code 2 if they are wrong."""
    made = parser("bench-peers", __doc__, rounds=3)
    made.add_argument("--quick", action="store_true", help="run one round with a tenth of the messages")
    made.add_argument("--docs", action="store_true", help="write the tables into the handbook")
    options = made.parse_args(words)
    if options.quick:
        options.rounds = 1
    if options.docs and (options.quick or options.only):
        made.error("--docs needs a whole run, without --quick and --only")
    if options.docs:
        try:
            pages.check(PAGE, MARK)
        except pages.PageError:
            made.error(f"{PAGE.name} must have <!-- {MARK} --> and <!-- /{MARK} --> after it")
    parts = [part.strip() for part in options.only.split(",")]
    for part in parts:
        if not any(part in peer.name for peer in PEERS):
            made.error(f"no peer has {part!r} in its name: {', '.join(peer.name for peer in PEERS)}")
    # delayq is always measured, to compare with.
    options.peers = [peer for peer in PEERS if not peer.requirements or any(part in peer.name for part in parts)]
    if find_program() is None:
        made.error("no redis-server on PATH: install one")
    return options


def main(words: list[str] | None = None) -> int:
    """Measure, print, and return 1 if delayq missed a goal or could not be compared."""
    options = read_options(words)
    rows = [Row(peer) for peer in options.peers]
    with RedisServer(tcp=True) as server:  # not every peer takes a unix socket
        bench = Bench(server.url, quick=options.quick)
        measure(bench, rows, options.rounds, lambda text: print(text, file=sys.stderr, flush=True))
        setting = Setting.here(bench.client.info("server")["redis_version"], options.rounds)
        bench.client.close()
    rows, found = sorted_rows(rows), multiples(rows)
    if options.json:
        print(json.dumps({**setting._asdict(), **as_json(rows, found)}, indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False)
        for table in tables(rows, f"{setting}{': a quick run, not exact' if options.quick else ''}"):
            console.print(table)
        for line in [*map(remarks, rows), verdict(found)]:
            console.print(line)
    if options.docs:
        pages.rewrite(PAGE, markdown(rows, found, f"Measured by `make bench-peers` on {setting}."), MARK)
    return 0 if found and all(one.met for one in found) and not rows[0].failures else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
