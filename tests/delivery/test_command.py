"""Programs: what they are told, what their exit codes mean, and that none outlives its time."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from delayq import ConfigurationError, Reject, Retry
from delayq.deliver import Command
from tests.support.deliveries import delivered
from tests.support.waiting import wait_until


def program(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def sh(code: str) -> list[str]:
    return ["sh", "-c", code]


def alive(pid: int) -> bool:
    """Say whether a process runs; one that only waits to be buried does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# What it is told


def test_the_payload_is_on_stdin_and_the_rest_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_WORKER", "is there")
    tell = "import json, os, sys; json.dump([sys.stdin.read(), dict(os.environ), sys.argv[2:]], open(sys.argv[1], 'w'))"
    run = Command(program(tell, str(tmp_path / "told"), "$HOME; echo `id`", ""))
    run(delivered({"summary": "Zahnarzt ☎"}, id="a/b", attempt=3))
    stdin, environment, argv = json.loads((tmp_path / "told").read_text())
    assert stdin == '{"summary":"Zahnarzt ☎"}'
    assert environment["DELAYQ_ID"] == "a/b"
    assert environment["DELAYQ_ATTEMPT"] == "3"
    assert environment["DELAYQ_DUE"] == "2027-01-31T09:00:00.000Z"
    assert environment["OF_THE_WORKER"] == "is there"
    assert argv == ["$HOME; echo `id`", ""]  # no shell has read them
    assert "DELAYQ_ID" not in os.environ


@pytest.mark.parametrize("payload", [b"\xff\x00\n", b"text\n", b"x" * 1_000_000])
def test_what_is_no_json_is_told_as_it_is(tmp_path, payload):
    Command(sh(f"cat > {tmp_path}/told"))(delivered(payload, codec="bytes"))
    assert (tmp_path / "told").read_bytes() == payload


def test_a_program_need_not_read():
    Command(["true"])(delivered("x" * 1_000_000))


# What its exit code means


def test_zero_acknowledges():
    assert Command(["true"])(delivered({})) is None


@pytest.mark.parametrize("code", [1, 2, 64, 65, 99, 101, 111, 126, 127, 255])
def test_any_other_has_the_message_delivered_again(code):
    with pytest.raises(Retry, match=f"^sh ended with exit code {code}$") as told:
        Command(sh(f"exit {code}"), retry_after=60)(delivered({}))
    assert told.value.delay is None


@pytest.mark.parametrize(("after", "delay"), [(None, None), ("2m", 120)])
def test_75_has_it_delivered_again_after_a_time(after, delay):
    with pytest.raises(Retry, match="exit code 75") as told:
        Command(sh("exit 75"), retry_after=after)(delivered({}))
    assert told.value.delay == delay


def test_100_rejects():
    with pytest.raises(Reject, match=r"^sh ended with exit code 100$"):
        Command(sh("exit 100"))(delivered({}))


def test_one_that_is_killed_is_tried_again():
    with pytest.raises(Retry, match=r"^sh was killed by signal 9$"):
        Command(sh("kill -9 $$"))(delivered({}))


def test_one_that_is_gone_meanwhile_is_tried_again(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    run = Command([str(tool)])
    run(delivered({}))
    tool.unlink()
    with pytest.raises(Retry, match=r"^tool cannot be started: No such file"):
        run(delivered({}))


# None outlives its time


def test_after_its_time_it_is_killed_with_all_that_it_has_started(tmp_path):
    pids = tmp_path / "pids"
    code = f"trap '' TERM; sleep 600 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    before = time.monotonic()
    with pytest.raises(Retry, match=r"^sh was killed after 1 s$"):
        Command(sh(code), timeout=1)(delivered({}))
    assert time.monotonic() - before < 30
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not alive(pid))


def test_one_that_does_not_read_a_large_payload_is_killed_as_well():
    with pytest.raises(Retry, match=r"was killed after 0.2 s"):
        Command(["sleep", "600"], timeout=0.2)(delivered("x" * 1_000_000))


def test_closing_kills_what_runs(tmp_path):
    run = Command(sh(f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600"))
    outcome = []

    def work():
        try:
            run(delivered({}))
        except Retry as retry:
            outcome.append(retry.reason)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until((tmp_path / "pid").exists)
    run.close()
    thread.join()
    assert outcome == [f"sh was killed by signal {signal.SIGKILL:d}"]
    assert not alive(int((tmp_path / "pid").read_text()))
    run.close()
    with pytest.raises(Retry, match="sh is not started any more"):
        run(delivered({}))


# What is refused


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "argv must be a list of words"),
        ("rm -rf /", "argv must be a list of words"),
        (["true", 1], "argv must be a list of words"),
        (["true", "a\0b"], "argv must be a list of words"),
        (["no-such-program"], "there is no program 'no-such-program'"),
        (["/etc/passwd"], "there is no program"),
    ],
)
def test_what_is_no_program_is_told_at_once(argv, said):
    with pytest.raises(ConfigurationError, match=said):
        Command(argv)
