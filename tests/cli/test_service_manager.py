"""What `delayq worker` says to systemd over NOTIFY_SOCKET: ready, alive, stopping."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
from collections import deque

import pytest

from delayq import DelayQueue
from delayq.cli.worker.service_manager import ServiceManager, find_service_manager
from tests.cli.conftest import PATIENCE, Program, Start

APP = """
import asyncio, os, time
from pathlib import Path
from delayq import AsyncDelayQueue, DelayQueue

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)

Path("importing").touch()
wait_for("import")
queue = AsyncDelayQueue("jobs", tick="50ms")
threads = DelayQueue("jobs", tick="50ms", callback=print)

@queue.callback
async def work(message):
    Path("inherited").write_text(" ".join(name for name in os.environ if name.startswith(("NOTIFY", "WATCHDOG"))))
    wait_for("unblock")  # holds up the event loop, and with it the loop of the consumer
    while not Path("finish").exists():
        await asyncio.sleep(0.01)
"""
WATCHDOG = {"WATCHDOG_USEC": "800000"}


class Systemd:
    """The end of the socket at which systemd listens."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(PATIENCE)
        self.received: deque[str] = deque()

    def next(self) -> list[str]:
        """Return the lines of the next datagram."""
        self.received.append(self._socket.recv(4096).decode())
        return self.received[-1].splitlines()

    def until(self, line: str) -> list[str]:
        """Return the first datagram with a line that begins so."""
        while True:
            found = self.next()
            if any(one.startswith(line) for one in found):
                return found

    def says_nothing(self) -> bool:
        """Return whether nothing has come that was not received yet."""
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(PATIENCE)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    """systemd, and the value of NOTIFY_SOCKET."""
    name = f"delayq-test-{os.getpid()}"
    made = Systemd(f"\0{name}" if request.param == "abstract" else str(tmp_path / "notify"))
    yield made, f"@{name}" if request.param == "abstract" else str(tmp_path / "notify")
    made.close()


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("systemd", ["abstract"], indirect=True)
def test_ready_alive_hung_and_stopping(start: Start, systemd, redis_url, tmp_path):
    manager, address = systemd
    (tmp_path / "app.py").write_text(APP)
    program: Program = start("worker", "app:queue", env={"NOTIFY_SOCKET": address, **WATCHDOG})
    program.until((tmp_path / "importing").exists, "the import")
    assert manager.says_nothing()
    (tmp_path / "import").touch()
    assert "STATUS=consuming" in manager.until("READY=1")
    assert "consuming jobs" in program.err
    manager.until("WATCHDOG=1")

    with DelayQueue("jobs", url=redis_url) as queue:
        queue.send_delay_msg(1)
    hung = manager.until("STATUS=the loop of a consumer has not turned for")
    assert "WATCHDOG=1" not in hung
    assert (tmp_path / "inherited").read_text() == ""
    (tmp_path / "unblock").touch()
    assert manager.next() == ["WATCHDOG=1", "STATUS=consuming"]  # and nothing in between

    program.signal()
    assert "STATUS=draining" in manager.until("STOPPING=1")  # while the callback runs
    (tmp_path / "finish").touch()
    assert program.ends() == 0
    assert sum(text.count("READY=1") + text.count("STOPPING=1") for text in manager.received) == 2


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_a_parent_speaks_for_its_processes(start: Start, systemd, tmp_path):
    manager, address = systemd
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "import").touch()
    program: Program = start("worker", "app:threads", "--processes", "2", env={"NOTIFY_SOCKET": address, **WATCHDOG})
    manager.until("READY=1")
    program.says("consuming jobs", 2)
    child = int(re.findall(r" (\d+) delayq.worker: consuming jobs", program.err)[1])
    os.kill(child, signal.SIGSTOP)
    assert "WATCHDOG=1" not in manager.until("STATUS=worker 2 does not go on")
    os.kill(child, signal.SIGCONT)
    found = manager.next()
    assert found[-1] == "STATUS=consuming"
    if found == ["STATUS=consuming"]:  # it was said that all go on just before one did not
        manager.until("WATCHDOG=1")
    program.signal()
    manager.until("STOPPING=1")
    assert program.ends() == 0


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_a_burst_that_is_over_at_once_was_ready(start: Start, systemd, tmp_path):
    manager, address = systemd
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "import").touch()
    program: Program = start("worker", "app:threads", "--burst", env={"NOTIFY_SOCKET": address})
    assert program.ends() == 0
    ready = manager.until("READY=1")
    assert "STOPPING=1" in ready or manager.until("STOPPING=1")


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_the_end_of_a_burst_is_not_said_before_its_beginning(systemd, queue):
    manager, address = systemd
    service = ServiceManager(address)
    queue.callback(print)
    with service.watching() as watch:
        consuming = queue.start_consume()
        watch.consumers = lambda: [consuming]
        service._report("draining", "")
    queue.stop_consume()
    assert manager.next() == ["STATUS=starting"]
    assert manager.next() == ["READY=1", "STOPPING=1", "STATUS=draining"]


def test_only_changes_are_said(systemd):
    manager, address = systemd
    service = ServiceManager(address)
    for ready, stopping in ((False, False), (False, False), (True, False), (True, False), (False, True), (False, True)):
        service.update(ready=ready, stopping=stopping, dead="")
    assert [manager.next() for _ in range(3)] == [
        ["STATUS=starting"], ["READY=1", "STATUS=consuming"], ["STOPPING=1", "STATUS=draining"],
    ]  # fmt: skip
    assert manager.says_nothing()


def test_the_watchdog_is_fed_in_time_and_not_for_a_dead_loop(systemd, monkeypatch):
    manager, address = systemd
    service = ServiceManager(address, watchdog=30)
    fed = []
    for second in range(1, 61):
        monkeypatch.setattr("delayq.cli.worker.service_manager.monotonic", lambda now=second: float(now))
        service.update(ready=True, stopping=False, dead="it hangs" if second > 40 else "")
        if not manager.says_nothing() and "WATCHDOG=1" in manager.next():
            fed.append(second)
    assert fed[0] == 1
    assert fed[-1] in range(31, 41)
    assert max(later - earlier for earlier, later in itertools.pairwise(fed)) <= 15


@pytest.mark.parametrize(
    ("environment", "watchdog"),
    [
        ({}, float("inf")),
        ({"WATCHDOG_USEC": "5000000"}, 5),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}, 5),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, float("inf")),
        ({"WATCHDOG_USEC": "0"}, float("inf")),
        ({"WATCHDOG_USEC": "soon"}, float("inf")),
    ],
)
def test_variables_of_systemd(environment, watchdog):
    variables = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_PID": "", **environment}
    service = find_service_manager(variables)
    assert service is not None
    assert service.watchdog == watchdog
    assert variables == {}  # what callbacks start must not speak for the worker


def test_without_a_socket_that_can_be_used_the_worker_goes_on(tmp_path, caplog):
    assert find_service_manager({"WATCHDOG_USEC": "1"}) is None
    assert find_service_manager({"NOTIFY_SOCKET": "vsock:2:1234"}) is None
    assert caplog.text.count("neither a path nor an abstract socket") == 1
    service = find_service_manager({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "1"})
    assert service is not None
    for _ in range(3):
        service.update(ready=True, stopping=False, dead="")
    assert caplog.text.count("cannot reach the service manager") == 1
