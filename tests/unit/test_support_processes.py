"""The processes of a test end with it, whatever happens to the test, and its failure does not reach the next."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import PATIENCE, Process
from tests.support.waiting import wait_until

ROOT = str(Path(__file__).parents[2])
PARENT = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(60)
"""


def is_gone(pid):
    """Return whether a process has ended, though nobody may have waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
@pytest.mark.parametrize("bufsize", [-1, 0], ids=["buffered", "unbuffered"])
def test_communicate_returns_what_was_read_ahead(text, bufsize):
    code = (
        "import sys; print('1\\n2 é\\n3', flush=True); sys.stdin.readline(); print('4'); print('no', file=sys.stderr)"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Process(
        [sys.executable, "-c", code], **pipes, text=text, bufsize=bufsize, encoding="utf-8" if text else None
    ) as process:
        first = process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0)
        out, err = process.communicate(timeout=PATIENCE)
    said = [part if text else part.decode() for part in (first, out, err)]
    assert said == ["1\n", "2 é\n3\n4\n", "no\n"]


def test_what_a_test_leaves_behind_is_killed_with_all_that_it_has_started():
    process = Process([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    lasting = Process(["sleep", "60"], lasting=True)
    processes.end_all()
    assert process.wait(10) == -signal.SIGKILL
    wait_until(lambda: is_gone(child))
    process.stdout.close()
    assert lasting.poll() is None
    lasting.end()


def test_an_error_is_not_kept_waiting_for_a_process():
    with pytest.raises(ZeroDivisionError), Process(["sleep", "60"]) as process:
        _ = 1 / 0
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_does_not_end_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with pytest.raises(subprocess.TimeoutExpired), Process(["sleep", "60"]) as process:
        pass
    assert process.returncode == -signal.SIGKILL


LASTING = """
from tests.support.processes import Process
left = Process(["sleep", "60"], lasting=True)
"""
SERVER = """
from tests.support.redis_server import RedisServer
left = RedisServer()
left.start()
"""


@pytest.mark.parametrize("start", [LASTING, SERVER], ids=["process", "server"])
def test_when_pytest_is_killed_what_it_has_started_is_too(start):
    program = f"import os\n{start}\nprint(left.pid, flush=True)\nos.kill(os.getpid(), 9)"
    with Process(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": ROOT}, stdout=subprocess.PIPE
    ) as killed:
        left = int(killed.stdout.readline())
        wait_until(lambda: is_gone(left))


def test_a_process_that_has_no_environment_yet_is_looked_at_again(monkeypatch):
    process = Process(["sleep", "60"])
    real, looks = processes.environments, []

    def environments():
        looks.append(1)
        yield from ((pid, b"" if pid == process.pid and len(looks) < 3 else found) for pid, found in real())

    monkeypatch.setattr(processes, "environments", environments)
    monkeypatch.setattr(processes, "_is_starting", process.pid.__eq__)
    processes.end_all()
    assert process.wait(10) == -signal.SIGKILL
    assert len(looks) > 3


@pytest.mark.long
def test_after_a_failure_the_shared_server_is_another_one(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makeconftest("from tests.conftest import *")
    pytester.makeini("[pytest]\nmarkers =\n    table(arguments, rows): see tests/conftest.py")
    pytester.makepyfile("""
        urls = []

        def test_fails(redis_url):
            urls.append(redis_url)
            assert not urls

        def test_passes(redis_url, redis_client):
            urls.append(redis_url)
            assert redis_client.ping()

        def test_passes_too(redis_url):
            assert urls[0] != urls[1] == redis_url
    """)
    result = pytester.runpytest_subprocess(
        "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"
    )
    result.assert_outcomes(failed=1, passed=2)
