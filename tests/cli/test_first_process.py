"""A worker as the first process of a container: orphans are reaped, signals and exit codes are passed on."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from delayq import DelayQueue
from tests.support.processes import Process, run
from tests.support.waiting import wait_until

PROGRAM = """
import ctypes, os, signal, subprocess, sys
from delayq.cli.worker.worker import go_on_in_child
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # orphans come to this process, as if it were the first one
go_on_in_child()
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
codes = [subprocess.run(["sh", "-c", "setsid sh -c 'exit 3' & exit 7"]).returncode for _ in range(20)]
orphan = subprocess.run(["sh", "-c", "setsid sleep 0.05 >&- 2>&- & echo $!"], capture_output=True, text=True).stdout
print(os.getppid(), orphan.strip(), set(codes), flush=True)
while not told:
    signal.pause()
"""


def children(parent: int) -> list[str]:
    """Return the state of each child of a process: Z for a zombie."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, of, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found += [state] if int(of) == parent else []
    return found


@pytest.mark.parametrize(("end", "code"), [("sys.exit(5)", 5), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9)])
def test_orphans_are_reaped_and_no_exit_code_of_others_is_taken(end, code):
    with Process([sys.executable, "-c", f"{PROGRAM}\n{end}"], stdout=subprocess.PIPE, text=True) as process:
        first, orphan, codes = process.stdout.readline().split(maxsplit=2)
        assert int(first) == process.pid
        assert codes.strip() == "{7}"
        wait_until(lambda: not Path(f"/proc/{orphan}").exists())
        wait_until(lambda: "Z" not in children(process.pid))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == code


def test_program_that_is_not_the_first_process_stays_as_it_is():
    code = "import os; from delayq.cli.worker.worker import leave_first_process; a = os.getpid(); leave_first_process()"
    assert run([sys.executable, "-c", f"{code}; raise SystemExit(a != os.getpid())"]).returncode == 0


IN_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there are no namespaces of processes")
def test_worker_of_a_container_leaves_no_zombies(redis_url):
    if run([*IN_CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("may not make a namespace of processes")
    worker = [sys.executable, "-m", "delayq", "worker", "--queue", "q", "--processes", "2"]
    program = ["--deliver", "command", "--", "sh", "-c", "setsid sleep 0.01 & sleep 100 & exit 0"]
    with (
        DelayQueue("q", url=redis_url) as queue,
        Process([*IN_CONTAINER, *worker, *program], env={**os.environ, "DELAYQ_URL": redis_url}) as process,
    ):
        queue.send_many(range(5))
        wait_until(lambda: queue.stats().totals.get("acked") == 5)
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        wait_until(lambda: children(int(first)) == ["S"])  # the worker alone
        os.kill(int(first), signal.SIGTERM)
        assert process.wait(30) == 0
