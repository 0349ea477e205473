"""The metrics and probes of a worker process, and of several, asked by their parent over a Unix socket each.

A counter of a process that was replaced begins anew, as Prometheus expects of one time series. So each process has
series of its own, with the label `process`, and those of a dead one are gone with the next scrape.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from delayq.metrics.families import REGISTRY, Collector, Families, Metric, read_families
from delayq.queue.consuming.consumer import AnyConsuming, QueueMeter, dead_loop, meters_of, why_unready
from delayq.worker.drivers.own_threads import OwnThreads
from delayq.worker.parts.meter import DURATION_BOUNDS, start_counting

ANSWERS_WITHIN = 2.0
"""Seconds that a process has to answer."""
ASKED_TOGETHER = 16
"""Processes that are asked at a time."""


class _Answer(NamedTuple):
    """What a process has answered; status 0 if it does not answer, though it runs."""

    status: int
    text: str


class ProcessMetrics(Collector):
    """Asks the processes whose sockets are in a folder, each named by its number."""

    def __init__(self, folder: Path) -> None:
        """Ask nobody yet."""
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all processes that answer, and how many these are."""
        families = Families()
        answers = self._ask("/metrics")
        answering = {number: found.text for number, found in answers.items() if found.status == HTTPStatus.OK}
        families.gauge("delayq_worker_processes", "Processes of the worker that answer", len(answering))
        for number, text in answering.items():
            for family in read_families(text):
                families.merge(family, process=str(number))
        return families

    def dead(self) -> str:
        """Return which processes do not go on, '' if all that run do; one that has ended is replaced anyway."""
        return _problems(self._ask("/livez"))

    def unready(self) -> str:
        """Return which processes do not consume, '' if all that run do, and there are any."""
        answers = self._ask("/readyz")
        if not answers:
            return "starting"
        return _problems(answers)

    def _ask(self, path: str) -> dict[int, _Answer]:
        """Return the answers of the processes that run, by number."""
        sockets = {int(found.name): found for found in self._folder.iterdir() if found.name.isdecimal()}
        numbers = sorted(sockets)
        answers: dict[int, _Answer | None] = {}

        def ask_next() -> None:
            while numbers:
                with suppress(IndexError):  # another thread was quicker
                    number = numbers.pop()
                    answers[number] = _get(sockets[number], path)

        own = OwnThreads()
        threads = [own.start(ask_next, "delayq-ask") for _ in numbers[1:ASKED_TOGETHER]]
        ask_next()  # this one asks as well, and alone if there is no room for others
        for thread in threads:
            if thread is not None:
                thread.join()
        return {number: one for number, one in sorted(answers.items()) if one is not None}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWERS_WITHIN)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket; raises `OSError` if nobody listens."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _get(path: Path, url: str) -> _Answer | None:
    """Return the answer of a process; None if it has ended."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", url)
        reply = connection.getresponse()
        return _Answer(reply.status, reply.read().decode())
    except (ConnectionRefusedError, FileNotFoundError, ConnectionResetError):
        return None
    except (OSError, http.client.HTTPException):
        return _Answer(0, f"no answer within {ANSWERS_WITHIN:g} s")
    finally:
        connection.close()


def _problems(answers: dict[int, _Answer]) -> str:
    failed = {number: found for number, found in answers.items() if found.status != HTTPStatus.OK}
    return "; ".join(f"process {number}: {found.text.strip()}" for number, found in failed.items())


ALIVE_WITHIN = 60.0
"""Seconds without a turn after which the loop of a consumer counts as dead, beyond its tick."""


class WorkerMonitor(Collector):
    """Reads the consumers of this process, in any thread; asks no Redis, and no lock of theirs.

    Its metrics come with those that the program itself has registered with prometheus-client.
    """

    def __init__(self) -> None:
        """Let the consumers count that start from now on."""
        start_counting()
        self.consumers: Callable[[], Sequence[AnyConsuming | None]] = tuple
        """Returns the consumers of this process, None for each that has not started."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the consumers that run."""
        yield from REGISTRY.collect()
        families = Families()
        families.add_build()
        families.gauge("delayq_worker_up", "1 if the worker consumes, as /readyz says, else 0", not self.unready())
        running = [one for one in self.consumers() if one is not None and one.running]
        for meter in [meter for consuming in running for meter in meters_of(consuming)]:
            _add_meter(families, meter)
        yield from families

    def dead(self) -> str:
        """Return which loop does not go on, '' if all do; while a worker drains, its loops may wait for callbacks."""
        return dead_loop(self.consumers(), ALIVE_WITHIN)

    def unready(self) -> str:
        """Return why this worker does not consume all of its queues, '' if it does."""
        return why_unready(self.consumers())


def _add_meter(families: Families, one: QueueMeter) -> None:
    queue, meter = one.queue, one.meter
    families.counter("delayq_worker_delivered_total", "Messages claimed by this process", meter.delivered, queue=queue)
    families.gauge("delayq_worker_in_flight", "Messages that this process has claimed", one.held, queue=queue)
    families.gauge("delayq_worker_running", "Callbacks that run in this process", one.running, queue=queue)
    for (name, outcome), number in meter.ended.copy().items():
        labels = {"queue": queue, "name": name, "outcome": outcome}
        documentation = "What became of the messages that this process had claimed"
        families.counter("delayq_worker_messages_total", documentation, number, **labels)
    for name, durations in meter.durations.copy().items():
        documentation = "How long callbacks of this process took"
        numbers, seconds = durations.numbers, durations.seconds
        families.histogram(
            "delayq_callback_duration_seconds", documentation, DURATION_BOUNDS, numbers, seconds, queue=queue, name=name
        )
