"""A history records all calls of a queue, even if the recording process is killed."""

import os
import signal
import sys
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage, OutcomeUnknown, UnavailableError
from delayq.broker.calls import Calls
from delayq.testing.torture.history import CallRecord, HeaderRecord, HistoryError, Recorder, ReplyRecord, read
from delayq.testing.torture.recorded_calls import CallHistory
from delayq.testing.torture.rules.checker import check, report_lines
from tests.support.processes import run
from tests.support.waiting import wait_until


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path / "one.jsonl", "one") as recorder:
        yield recorder


@pytest.fixture
def history(recorder):
    return CallHistory(recorder)


@pytest.fixture
def queue(redis_url, history):
    with DelayQueue("recorded", url=redis_url, lease=1, deadline=2, nack_delay=0) as queue:
        queue.context.observe(history)
        yield queue


def soon():
    return datetime.now(UTC)


def lines(tmp_path):
    return [line for _, line in read([tmp_path / "one.jsonl"])]


def test_every_call_is_recorded_before_and_after(queue, tmp_path):
    queue.send_schedule_msg("hello", soon(), id="a", retries=1)
    with queue.lease(block=1) as message:
        message.extend()
    recorded = [(line.op, line.ids) if isinstance(line, CallRecord) else line.statuses for line in lines(tmp_path)[1:]]
    assert recorded[:2] == [("send", ["a"]), "1"]
    assert recorded[-4:] == [("extend", ["a"]), "1", ("ack", ["a"]), "1"]


def test_every_recorded_operation_is_a_call():
    assert set(CallHistory.operations) <= set(dir(Calls))


def test_report_of_a_start_is_recorded_as_such(queue, tmp_path):
    def calls():
        return [(line.op, line.ids) for line in lines(tmp_path) if isinstance(line, CallRecord)]

    queue.callback(lambda _: wait_until(lambda: ("start_report", ["a"]) in calls()))
    queue.send_schedule_msg("hello", soon(), id="a", retries=3)
    queue.run(burst=True)
    assert [op for op, ids in calls() if ids == ["a"]] == ["send", "start_report", "ack"]
    assert [line.retries_left for line in lines(tmp_path) if isinstance(line, ReplyRecord) and line.ids] == [[3]]


def test_recorded_history_passes_the_check(queue, tmp_path):
    queue.send_many([NewMessage(number, at=soon(), id=f"m{number}", retries=1) for number in range(20)])
    later = soon() + timedelta(hours=1)
    queue.send_schedule_msg("later", later, id="later")
    queue.reschedule("later", at=later + timedelta(hours=1))
    queue.cancel("later")
    for message in queue.lease(n=20, block=1):
        turn = int(message.id[1:]) % 4
        (message.ack, message.nack, message.release, lambda message=message: message.reject("no"))[turn]()
    queue.dead.redrive("m3")
    queue.dead.purge("m7")
    queue.callback(lambda message: True)
    queue.run(burst=True)
    result = check([tmp_path])
    assert result.right, list(report_lines(result))
    assert result.messages == 21
    assert result.deliveries >= 30


def test_unsent_call_is_recorded_as_failed(history, tmp_path):
    with DelayQueue("nowhere", url=f"unix://{tmp_path}/none", deadline=0.05) as queue:
        queue._opened = True
        queue.context.observe(history)
        with pytest.raises(UnavailableError) as raised:
            queue.send_schedule_msg("hello", soon())
        history.failed(raised.value)
        assert not history.unanswered
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, ReplyRecord)] == ["fail"]


def test_call_without_reply_is_recorded_as_unknown(history, tmp_path, queue):
    queue.context.calls.cancel(["a"])
    history.failed(OutcomeUnknown("no answer"))
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, ReplyRecord)] == ["unknown"]


def test_unsent_calls_of_one_round_trip_are_recorded_as_unknown(history, tmp_path, queue):
    queue.context.calls.cancel(["a"])
    queue.context.calls.cancel(["b"])
    history.failed(UnavailableError("not sent"))
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, ReplyRecord)] == ["unknown", "unknown"]


def test_delays_cannot_be_recorded(queue):
    with pytest.raises(TypeError, match="for a time"):
        queue.send_delay_msg("hello", 1)


def test_killed_process_has_recorded_every_started_call(tmp_path):
    program = """
import os, sys
from pathlib import Path
from delayq.testing.torture.history import CallRecord, Recorder, now
recorder = Recorder(Path(sys.argv[1]), "killed")
for number in range(1000):
    recorder.write(CallRecord(at=now(), call=number, op="claim"))
os.kill(os.getpid(), 9)
"""
    done = run([sys.executable, "-c", program, str(tmp_path / "one.jsonl")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(lines(tmp_path)) == 1001


def test_truncated_last_line_is_skipped(recorder, tmp_path):
    recorder.write(CallRecord(at=1, call=1, op="claim"))
    path = tmp_path / "one.jsonl"
    os.truncate(path, path.stat().st_size - 3)
    assert [type(line) for line in lines(tmp_path)] == [HeaderRecord]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}\n", "line 1"),
        ("not json\n", "line 1"),
        ('{"type":"claim","at":1}\n', "line 1"),
        ('{"type":"fault","at":1,"until":2,"kind":"kill"}\n', "must name its process"),
    ],
)
def test_error_in_a_history_names_file_and_line(tmp_path, text, why):
    (tmp_path / "one.jsonl").write_text(text)
    with pytest.raises(HistoryError, match=why) as raised:
        lines(tmp_path)
    assert "one.jsonl" in str(raised.value)


def test_history_is_not_overwritten(tmp_path, recorder):
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "one.jsonl", "two")
