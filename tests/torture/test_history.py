"""A history tells what a queue did, whatever happens to the process that writes it."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage, OutcomeUnknown, UnavailableError
from delayq.torture.checker import check, tell
from delayq.torture.history import Answer, HistoryError, Invoke, Opened, Recorder, read
from delayq.torture.recorded import RecordedCalls


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path / "one.jsonl", "one") as recorder:
        yield recorder


@pytest.fixture
def queue(redis_url, recorder):
    with DelayQueue("recorded", url=redis_url, lease=0.1, deadline=0.2) as queue:
        queue._tools.calls = RecordedCalls(queue._tools.calls.keys, recorder)
        yield queue


def soon():
    return datetime.now(UTC)


def lines(tmp_path):
    return [line for _, line in read([tmp_path / "one.jsonl"])]


def test_every_call_is_told_before_and_after(queue, tmp_path):
    queue.send_schedule_msg("hello", soon(), id="a", retries=1)
    with queue.lease(block=1) as message:
        message.extend()
    told = [(line.op, line.ids) if isinstance(line, Invoke) else line.digits for line in lines(tmp_path)[1:]]
    assert told[:2] == [("send", ["a"]), "1"]
    assert told[-4:] == [("extend", ["a"]), "1", ("ack", ["a"]), "1"]


def test_what_a_queue_does_is_found_right(queue, tmp_path):
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
    verdict = check([tmp_path])
    assert verdict.right, list(tell(verdict))
    assert verdict.messages == 21
    assert verdict.deliveries >= 30


def test_a_call_that_was_not_sent_is_told_to_have_failed(recorder, tmp_path):
    with DelayQueue("nowhere", url=f"unix://{tmp_path}/none", deadline=0.05) as queue:
        queue._opened = True
        queue._tools.calls = calls = RecordedCalls(queue._tools.calls.keys, recorder)
        with pytest.raises(UnavailableError) as raised:
            queue.send_schedule_msg("hello", soon())
        calls.failed(raised.value)
        assert not calls.unanswered
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, Answer)] == ["fail"]


def test_a_call_in_doubt_is_told_to_be(recorder, tmp_path, queue):
    calls = queue._tools.calls
    calls.cancel(["a"])
    calls.failed(OutcomeUnknown("no answer"))
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, Answer)] == ["unknown"]


def test_of_several_calls_at_once_all_are_in_doubt(recorder, tmp_path, queue):
    calls = queue._tools.calls
    calls.cancel(["a"])
    calls.cancel(["b"])
    calls.failed(UnavailableError("not sent"))
    assert [line.outcome for line in lines(tmp_path) if isinstance(line, Answer)] == ["unknown", "unknown"]


def test_delays_cannot_be_told(queue):
    with pytest.raises(TypeError, match="for a time"):
        queue.send_delay_msg("hello", 1)


def test_a_killed_process_has_told_all_that_it_began(tmp_path):
    program = """
import os, sys
from pathlib import Path
from delayq.torture.history import Invoke, Recorder, now
recorder = Recorder(Path(sys.argv[1]), "killed")
for number in range(1000):
    recorder.write(Invoke(at=now(), call=number, op="claim"))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "one.jsonl")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(lines(tmp_path)) == 1001


def test_a_line_that_was_cut_short_is_left_out(recorder, tmp_path):
    recorder.write(Invoke(at=1, call=1, op="claim"))
    path = tmp_path / "one.jsonl"
    os.truncate(path, path.stat().st_size - 3)
    assert [type(line) for line in lines(tmp_path)] == [Opened]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}\n", "line 1"),
        ("not json\n", "line 1"),
        ('{"type":"claim","at":1}\n', "line 1"),
        ('{"type":"calm","at":1}\n', "begins with the name of its process"),
    ],
)
def test_what_is_no_history_is_refused_with_file_and_line(tmp_path, text, why):
    (tmp_path / "one.jsonl").write_text(text)
    with pytest.raises(HistoryError, match=why) as raised:
        lines(tmp_path)
    assert "one.jsonl" in str(raised.value)


def test_a_history_is_not_written_over(tmp_path, recorder):
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "one.jsonl", "two")
