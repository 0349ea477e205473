"""The metrics and probes of several worker processes, asked by their parent over a Unix socket each.

A counter of a process that was replaced begins anew, as Prometheus expects of one time series. So each process has
series of its own, with the label `process`, and those of a dead one are gone with the next scrape.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from delayq.metrics.families import Collector, Families, Metric, read_families
from delayq.worker.drivers.own_threads import OwnThreads

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
