"""Measures delayq against what Redis itself can do, on a throwaway server.

    make bench                       all measurements, medians of 5 rounds
    make bench ARGS="--rounds 1 --only send"

The raw limit of a rate is measured in the same round: the same scripts with the same arguments, packed beforehand and
sent over a bare socket read by hiredis, with nothing around it. What the event log costs is measured beside the same
without it. These machines are noisy, so judge by the ratio.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import hiredis
import redis
from rich.console import Console
from rich.table import Table

from delayq import DelayQueue, NewMessage
from delayq.calls import Call, Calls, Outgoing, Receipt
from delayq.ids import new_id
from delayq.keys import Keys
from delayq.throwaway import RedisServer, find_program

PAYLOAD = b'"' + b"x" * 62 + b'"'
TEXT = "x" * 62
BATCH = 500
CLAIM = 100


class Figure(NamedTuple):
    """One measurement over the rounds: what delayq did, the limit or peer beside it, and what is to be reached."""

    name: str
    values: list[float]
    raw: list[float]
    goal: str
    met: Callable[[Figure], bool]
    unit: str = "/s"

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """The median of the ratios round by round; None without a raw limit."""
        if not self.raw:
            return None
        return statistics.median(value / raw for value, raw in zip(self.values, self.raw, strict=True))


class Raw:
    """A bare connection: packed bytes out, hiredis in."""

    def __init__(self, path: str) -> None:
        """Connect to a unix socket."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()
        self._sequence = 0

    def pack(self, call: Call[Any]) -> bytes:
        """Pack a call as an executor would, its script loaded before."""
        self._sequence += 1
        fence = ("raw", self._sequence) if call.script.executes_once else ()
        return bytes(hiredis.pack_command(("EVALSHA", call.script.sha, len(call.keys), *call.keys, *fence, *call.args)))

    def load(self, call: Call[Any]) -> None:
        """Load the script of a call."""
        self.exchange(bytes(hiredis.pack_command(("SCRIPT", "LOAD", call.script.text))), 1)

    def exchange(self, data: bytes, answers: int) -> list[Any]:
        """Send bytes and read so many answers."""
        self._socket.sendall(data)
        replies = []
        while len(replies) < answers:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 20))
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies.append(reply)
        return replies


class Bench:
    """The measurements, on one server that is emptied before each."""

    def __init__(self, path: str, scale: float) -> None:
        """Measure on the server at a unix socket, with message counts multiplied by `scale`."""
        self.path = path
        self.url = f"unix://{path}"
        self.scale = scale
        self.client = redis.Redis.from_url(self.url)
        self.raw = Raw(path)
        self.logged_first = False
        self.calls = Calls(Keys.of("delayq", "bench"))
        for call in (
            self.calls.send([_outgoing()], replace=False, max_length=None),
            self.calls.pending_to_ready(),
            self.calls.ready_to_unack(1, lease=1, holder="raw"),
            self.calls.ack([]),
        ):
            self.raw.load(call)

    def many(self, n: int) -> int:
        """Return a count of messages to measure with."""
        return max(BATCH, int(n * self.scale))

    def empty(self) -> None:
        """Empty the server, its scripts kept."""
        self.client.flushall()

    def send_many(self) -> tuple[float, float]:
        """Messages a second by send_many, beside the send script in slices of the same size."""
        n = self.many(100_000)
        self.empty()
        batches = [
            self.raw.pack(self.calls.send([_outgoing() for _ in range(BATCH)], replace=False, max_length=None))
            for _ in range(n // BATCH)
        ]
        raw = rate_of(n, lambda: [self.raw.exchange(batch, 1) for batch in batches])
        return self._send_many(n), raw

    def _send_many(self, n: int, *, logged: bool = False) -> float:
        self.empty()
        with DelayQueue("bench", url=self.url, events=logged) as queue:
            queue.send_delay_msg(TEXT)
            payloads = [TEXT] * n
            return rate_of(n, lambda: queue.send_many(payloads, delay=60))

    def send_one(self) -> tuple[float, float]:
        """Messages a second one by one, beside bare round trips of the send script."""
        n = self.many(10_000)
        self.empty()
        sends = [self.raw.pack(self.calls.send([_outgoing()], replace=False, max_length=None)) for _ in range(n)]
        raw = rate_of(n, lambda: [self.raw.exchange(send, 1) for send in sends])
        self.empty()
        with DelayQueue("bench", url=self.url) as queue:
            queue.send_delay_msg(TEXT)
            return rate_of(n, lambda: [queue.send_delay_msg(TEXT, 60) for _ in range(n)]), raw

    def consume(self) -> tuple[float, float]:
        """Messages a second through empty callbacks at concurrency 10, beside the raw claim + ack loop."""
        n = self.many(100_000)
        self.empty()
        with DelayQueue("bench", url=self.url) as queue:
            queue.send_many([TEXT] * n)
        raw = rate_of(n, lambda: self._claim_and_ack(n))
        return self._consume(n), raw

    def _consume(self, n: int, *, logged: bool = False) -> float:
        self.empty()
        with DelayQueue("bench", url=self.url, concurrency=10, events=logged) as queue:
            queue.send_many([TEXT] * n)
            left = n
            done = threading.Event()

            @queue.callback
            def count(_: Any) -> None:
                nonlocal left
                left -= 1
                if left <= 0:
                    done.set()

            def consume() -> None:
                queue.start_consume()
                if not done.wait(120):
                    raise TimeoutError(f"{left} messages were not delivered")

            rate = rate_of(n, consume)
            queue.stop_consume()
            if queue.counts().living:
                raise AssertionError(f"not all were settled: {queue.counts()}")
            return rate

    def events(self) -> dict[str, tuple[float, float]]:
        """Messages a second sent and consumed with the event log on, beside the same with it off; in turns first."""
        n, self.logged_first = self.many(100_000), not self.logged_first
        found = {}
        for part, measured in (("send_many", self._send_many), ("consume", self._consume)):
            rates = {logged: measured(n, logged=logged) for logged in (self.logged_first, not self.logged_first)}
            found[f"{part}_logged"] = (rates[True], rates[False])
        return found

    def _claim_and_ack(self, n: int) -> None:
        """Settle what was claimed before and claim the next, in one round trip, as a consumer's turn does."""
        raw, calls = self.raw, self.calls
        receipts: list[Receipt] = []
        settled = 0
        while settled < n:
            turn = [
                raw.pack(calls.pending_to_ready()),
                raw.pack(calls.ready_to_unack(CLAIM, lease=30_000, holder="raw")),
            ]
            if receipts:
                turn.insert(0, raw.pack(calls.ack(receipts)))
                settled += len(receipts)
            claimed = raw.exchange(b"".join(turn), len(turn))[-1]
            receipts = list(map(Receipt, claimed[3], claimed[4]))

    def lateness(self) -> dict[str, float]:
        """Milliseconds between due time and callback at 1,000 due a second, by the one clock of this machine."""
        seconds, per_second = 5, 1000
        self.empty()
        late: list[float] = []
        with DelayQueue("bench", url=self.url, concurrency=10) as queue:
            queue.callback(lambda message: late.append(time.time() - message.due.timestamp()))
            consuming = queue.start_consume()
            queue.send_delay_msg(TEXT)
            n = seconds * per_second
            queue.send_many(_spread(n, 1.0, seconds))
            deadline = time.monotonic() + seconds + 30
            while len(late) < n + 1 and time.monotonic() < deadline:
                time.sleep(0.05)
            consuming.stop()
            consuming.wait()
        late = sorted(1000 * value for value in late[1:])
        if len(late) != n:
            raise AssertionError(f"{len(late)} of {n} were delivered")
        return {
            "p50": late[n // 2],
            "p99": late[int(n * 0.99)],
            "max": late[-1],
            "early": sum(value < 0 for value in late),
        }

    def idle(self) -> float:
        """Client commands a second of one idle consumer."""
        self.empty()
        with DelayQueue("bench", url=self.url, callback=lambda _: None) as queue:
            queue.start_consume()
            time.sleep(1.5)
            before, began = self._client_commands(), time.monotonic()
            time.sleep(5)
            return (self._client_commands() - before) / (time.monotonic() - began)

    def _client_commands(self) -> int:
        # Scripts are counted by what they call as well; of what clients send, a consumer uses these.
        stats = self.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "blpop", "eval"))

    def memory(self) -> float:
        """Bytes a pending message takes beside its payload."""
        n = self.many(100_000)
        self.empty()
        with DelayQueue("bench", url=self.url) as queue:
            queue.send_delay_msg(TEXT, 60)
            before = self.client.info("memory")["used_memory"]
            queue.send_many([TEXT] * n, delay=60)
            return (self.client.info("memory")["used_memory"] - before) / n - len(PAYLOAD)


def _outgoing() -> Outgoing:
    return Outgoing(new_id(), 60_000, 3, PAYLOAD, b"")


def _spread(n: int, after: float, over: float) -> Iterator[Any]:
    return (NewMessage(TEXT, delay=after + over * i / n) for i in range(n))


def rate_of(n: int, work: Callable[[], object]) -> float:
    """Return how many a second were done."""
    began = time.perf_counter()
    work()
    return n / (time.perf_counter() - began)


@contextmanager
def throwaway_server() -> Iterator[str]:
    """Run a `redis-server` for the measurements; yields the path of its socket."""
    if find_program() is None:
        sys.exit("bench: needs a redis-server on PATH: it measures one of its own")
    with RedisServer() as server:
        yield urlsplit(server.url).path


def measure(bench: Bench, rounds: int, only: str, say: Callable[[str], None]) -> list[Figure]:
    """Take every measurement `rounds` times, round by round, so that a slow minute hits them all."""
    figures = {
        "send_many": Figure("send_many", [], [], "≥ 0.6 of raw", at_least(0.6)),
        "send": Figure("send one by one", [], [], "≥ 0.6 of raw", at_least(0.6)),
        "consume": Figure("consume, 10 threads", [], [], "≥ 0.35 of raw", at_least(0.35)),
        "send_many_logged": Figure("send_many, events logged", [], [], "≥ 0.7 of unlogged", at_least(0.7)),
        "consume_logged": Figure("consume, events logged", [], [], "≥ 0.7 of unlogged", at_least(0.7)),
        "p50": Figure("lateness p50, 1,000 due/s", [], [], "", lambda _: True, " ms"),
        "p99": Figure("lateness p99, 1,000 due/s", [], [], "≤ 20 ms", at_most(20), " ms"),
        "early": Figure("delivered early", [], [], "0", at_most(0), ""),
        "idle": Figure("idle, client commands", [], [], "≤ 3/s", at_most(3)),
        "memory": Figure("memory beside the payload", [], [], "≤ 310 B", at_most(310), " B"),
    }
    for turn in range(rounds):
        for name in ("send_many", "send", "consume", "events", "lateness", "idle", "memory"):
            if only not in name:
                continue
            say(f"round {turn + 1} of {rounds}: {name}")
            if name in ("send_many", "send", "consume"):
                rate, raw = getattr(bench, "send_one" if name == "send" else name)()
                figures[name].values.append(rate)
                figures[name].raw.append(raw)
            elif name == "events":
                for part, (logged, unlogged) in bench.events().items():
                    figures[part].values.append(logged)
                    figures[part].raw.append(unlogged)
            elif name == "lateness":
                late = bench.lateness()
                for part in ("p50", "p99", "early"):
                    figures[part].values.append(late[part])
            else:
                figures[name].values.append(getattr(bench, name)())
    return [figure for figure in figures.values() if figure.values]


def at_least(ratio: float) -> Callable[[Figure], bool]:
    """Return whether a figure's ratio is met."""
    return lambda figure: figure.ratio is not None and figure.ratio >= ratio


def at_most(most: float) -> Callable[[Figure], bool]:
    """Return whether a figure's median is met."""
    return lambda figure: figure.median <= most


def figure_rows(figures: list[Figure]) -> dict[str, Any]:
    """Return figures as JSON holds them."""
    return {
        figure.name: {
            "median": figure.median,
            "ratio": figure.ratio,
            "values": figure.values,
            "raw": figure.raw,
            "goal": figure.goal,
            "met": figure.met(figure),
        }
        for figure in figures
    }


def figure_table(figures: list[Figure], title: str) -> Table:
    """Return figures as a table."""
    table = Table("figure", "median", "ratio", "goal", "", title=title)
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        mark = "met" if figure.met(figure) else "MISSED"
        shown = f"{figure.median:.1f}" if figure.unit == " ms" else f"{figure.median:,.0f}"
        table.add_row(figure.name, f"{shown}{figure.unit}", ratio, figure.goal, mark if figure.goal else "")
    return table


def read_arguments(description: str | None, *, rounds: int) -> argparse.Namespace:
    """Return the arguments of a benchmark that takes so many rounds by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the counts")
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    parser.add_argument("--json", action="store_true", help="figures on stdout as JSON")
    return parser.parse_args()


def main() -> int:
    """Measure, print, and return 1 if a goal was missed."""
    options = read_arguments(__doc__, rounds=5)
    with throwaway_server() as path:
        bench = Bench(path, options.scale)
        figures = measure(bench, options.rounds, options.only, lambda text: print(text, file=sys.stderr))
        version = bench.client.info("server")["redis_version"]
    if options.json:
        print(
            json.dumps(
                {"redis": version, "python": platform.python_version(), "figures": figure_rows(figures)}, indent=2
            )
        )
    else:
        Console().print(figure_table(figures, f"Redis {version}, Python {platform.python_version()}"))
    return 0 if all(figure.met(figure) for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
