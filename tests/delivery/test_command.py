"""Programs: input, exit codes, time-outs, and invalid arguments."""

import json
import logging
import os
import signal
import sys
import threading
import time

import pytest

from delayq import ConfigurationError, Reject, Retry, StopWorker
from delayq.delivery import Command
from delayq.delivery.command import MAX_OUTPUT_BYTES
from tests.support.deliveries import delivered
from tests.support.waiting import wait_until


def program(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def sh(code: str) -> list[str]:
    return ["sh", "-c", code]


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Input


def test_payload_is_on_stdin_and_other_fields_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_WORKER", "is there")
    save = "import json, os, sys; json.dump([sys.stdin.read(), dict(os.environ), sys.argv[2:]], open(sys.argv[1], 'w'))"
    run = Command(program(save, str(tmp_path / "input"), "$HOME; echo `id`", ""))
    run(delivered({"summary": "Zahnarzt ☎"}, id="a/b", attempt=3))
    stdin, environment, argv = json.loads((tmp_path / "input").read_text())
    assert stdin == '{"summary":"Zahnarzt ☎"}'
    assert environment["DELAYQ_ID"] == "a/b"
    assert environment["DELAYQ_ATTEMPT"] == "3"
    assert environment["DELAYQ_DUE"] == "2027-01-31T09:00:00.000Z"
    assert environment["OF_THE_WORKER"] == "is there"
    assert argv == ["$HOME; echo `id`", ""]  # without a shell
    assert "DELAYQ_ID" not in os.environ


@pytest.mark.parametrize("payload", [b"\xff\x00\n", b"text\n", b"x" * 1_000_000])
def test_non_json_payload_is_passed_as_bytes(tmp_path, payload):
    Command(sh(f"cat > {tmp_path}/input"))(delivered(payload, codec="bytes"))
    assert (tmp_path / "input").read_bytes() == payload


def test_program_may_ignore_its_input():
    Command(["true"])(delivered("x" * 1_000_000))


def test_program_sees_no_secrets_of_the_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", "redis://:s3cr3t@127.0.0.1/0")
    monkeypatch.setenv("DELAYQ_SMTP_PASSWORD", "s3cr3t")
    monkeypatch.setenv("DELAYQ_WEBHOOK_SECRET", "s3cr3t")
    monkeypatch.setenv("CACHE", "rediss://:s3cr3t@example.com")
    Command(sh(f"env > {tmp_path}/env"))(delivered({}))
    assert "s3cr3t" not in (tmp_path / "env").read_text()
    Command(sh(f"env > {tmp_path}/env"), pass_env=["DELAYQ_URL"])(delivered({}))
    shown = (tmp_path / "env").read_text()
    assert "DELAYQ_URL=redis://:s3cr3t@127.0.0.1/0" in shown
    assert shown.count("s3cr3t") == 1


# Output


def test_output_goes_to_the_worker(capfd):
    with pytest.raises(Retry):
        Command(sh("echo out; echo err >&2; exit 1"))(delivered({}))
    assert capfd.readouterr() == ("out\n", "err\n")


def test_output_is_bounded(capfd, caplog):
    code = "import sys; sys.stdout.write('x' * 10_000_000); sys.stdout.flush(); sys.stderr.write('end')"
    Command(program(code))(delivered({}))
    out, err = capfd.readouterr()
    assert out == "x" * MAX_OUTPUT_BYTES
    assert err == "end"
    name = os.path.basename(sys.executable)  # noqa: PTH119
    assert f"message m1: {name} printed too much, the rest was dropped" in caplog.messages


# Exit codes


def test_exit_code_0_acknowledges():
    assert Command(["true"])(delivered({})) is None


@pytest.mark.table("code", [1, 2, 64, 65, 99, 101, 111, 126, 127, 255])
def test_other_exit_codes_retry(code):
    with pytest.raises(Retry, match=f"^sh ended with exit code {code}$") as raised:
        Command(sh(f"exit {code}"), retry_after=60)(delivered({}))
    assert raised.value.delay is None


@pytest.mark.parametrize(("after", "delay"), [(None, None), ("2m", 120)])
def test_exit_code_75_retries_after_a_delay(after, delay):
    with pytest.raises(Retry, match="exit code 75") as raised:
        Command(sh("exit 75"), retry_after=after)(delivered({}))
    assert raised.value.delay == delay


def test_exit_code_100_rejects():
    with pytest.raises(Reject, match=r"^sh ended with exit code 100$"):
        Command(sh("exit 100"))(delivered({}))


def test_killed_program_is_retried():
    with pytest.raises(Retry, match=r"^sh was killed by signal 9$"):
        Command(sh("kill -9 $$"))(delivered({}))


def test_program_that_is_replaced_is_waited_for(tmp_path, caplog):
    caplog.set_level(logging.INFO, "delayq.deliver")
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    run = Command([str(tool)])
    tool.rename(tmp_path / "old")
    back = threading.Timer(0.3, (tmp_path / "old").rename, [tool])
    back.start()
    run(delivered({}))  # nothing is raised, so nothing is charged
    back.join()
    text = "tool cannot be started: No such file or directory; nothing is charged, trying again until it works"
    assert caplog.messages == [text, "deliveries from this machine go on"]


# Time-outs and stopping


@pytest.mark.long
def test_timeout_kills_the_process_group(tmp_path):
    pids = tmp_path / "pids"
    code = f"trap '' TERM; sleep 600 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    before = time.monotonic()
    with pytest.raises(Retry, match=r"^sh was killed after 1 s$"):
        Command(sh(code), timeout=1)(delivered({}))
    assert time.monotonic() - before < 30
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not alive(pid))


def test_children_end_with_the_program(tmp_path, capfd):
    Command(sh(f"sleep 600 & echo $! > {tmp_path}/pid; echo done"), timeout=300)(delivered({}))
    assert capfd.readouterr().out == "done\n"
    wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_child_of_its_own_session_does_not_hold_the_delivery(tmp_path):
    file = str(tmp_path / "pid")
    leave = "import subprocess, sys; pid = subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
    Command(program(f"{leave}; open(sys.argv[1], 'w').write(str(pid))", file), timeout=300)(delivered({}))
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_timeout_kills_a_program_that_does_not_read():
    with pytest.raises(Retry, match=r"was killed after 0.2 s"):
        Command(["sleep", "600"], timeout=0.2)(delivered("x" * 1_000_000))


def test_close_kills_running_programs(tmp_path):
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
    with pytest.raises(StopWorker, match="sh was not started: the worker is stopping"):
        run(delivered({}))


# Invalid arguments


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ([], "argv must be a list of strings"),
        ("rm -rf /", "argv must be a list of strings"),
        (["true", 1], "argv must be a list of strings"),
        (["true", "a\0b"], "argv must be a list of strings"),
        (["no-such-program"], "program 'no-such-program' not found"),
        (["/etc/passwd"], "program '/etc/passwd' not found"),
    ],
)
def test_invalid_program_is_refused_on_creation(argv, error):
    with pytest.raises(ConfigurationError, match=error):
        Command(argv)
