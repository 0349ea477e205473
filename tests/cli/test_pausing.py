"""`delayq pause` and `delayq resume`, beside workers in processes of their own."""

import time

import pytest

from delayq import DelayQueue, Pause, Worker
from delayq.values.times import monotonic
from tests.cli.conftest import Start
from tests.support.waiting import wait_until

APP = """
import time
from delayq import DelayQueue

queue = DelayQueue("jobs")

@queue.callback
def work(message):
    with open("starts", "a") as starts:
        starts.write(f"{message.id} {time.clock_gettime(time.CLOCK_MONOTONIC)}\\n")
    time.sleep(0.005)
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_nothing_starts_in_two_workers_after_a_tick_and_all_is_done_once_after_resume(
    start: Start, cli, redis_url, tmp_path
):
    (tmp_path / "app.py").write_text(APP)
    file = tmp_path / "starts"

    def starts():
        rows = file.read_text().splitlines() if file.exists() else []
        return [(row.split()[0], float(row.split()[1])) for row in rows]

    with DelayQueue("jobs", url=redis_url) as queue:
        total = 4000
        queue.send_many([str(n) for n in range(total)])
        workers = [start("worker", "app:queue") for _ in range(2)]
        workers[0].until(lambda: len(starts()) > 200, "starts")
        ended = cli("pause", "jobs", "--until", "1h", "--reason", "deploy")
        paused_at = monotonic()
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("jobs  paused until 20")
        assert ended.out.endswith(": deploy\n")
        wait_until(lambda: queue.counts().active == 0, 10)
        time.sleep(max(0.0, paused_at + 2 - monotonic()))  # a tick more: would anything start?
        before = starts()
        assert len(before) < total
        assert max(at for _, at in before) <= paused_at + 1.2
        queue.send_delay_msg("meanwhile")
        assert cli("stats", "jobs", "--json").json["paused"]["reason"] == "deploy"
        assert "paused until 20" in cli("stats", "jobs").out
        assert "jobs: paused until 20" in cli("queues").out
        assert ": deploy" in cli("doctor", "jobs").out
        assert len(starts()) == len(before)

        assert cli("resume", "jobs").out == "jobs  resumed\n"
        workers[0].until(lambda: queue.counts().living == 0, "the end of all messages")
        assert len(starts()) == len({id for id, _ in starts()}) == total + 1
        assert queue.stats().totals["acked"] == total + 1
        for worker in workers:
            worker.signal()
            assert worker.ends() == 0


def test_pauses_without_an_end_and_prints_json(cli, queue):
    queue.send_delay_msg(1)
    assert cli("pause", "reminders").out == "reminders  paused until it is resumed\n"
    ended = cli("pause", "reminders", "--until", "2190-01-01T00:00", "--reason", "later", "--json")
    assert ended.json == {"queue": "reminders", "paused": {"until": "2190-01-01T00:00:00.000Z", "reason": "later"}}
    assert queue.counts().paused == Pause(queue.counts().paused.until, "later")
    assert cli("resume", "reminders", "--json").json == {"queue": "reminders", "resumed": True}
    assert cli("resume", "reminders").out == "reminders  was not paused\n"
    assert cli("queues", "--json").json["queues"][0]["paused"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["gone"], 3, "gone"),
        (["reminders", "--until", "2020-01-01T00:00Z"], 2, "has passed"),
        (["reminders", "--until", "soon"], 2, "must look like"),
        (["reminders", "--until", "0s"], 2, "must be between"),
        (["reminders", "--reason", "x" * 201], 2, "at most 200 characters"),
        (["reminders", "--reason", "two\nlines"], 2, "one line"),
        (["reminders", "--engine", "streams"], 2, "the streams engine has no pausing"),
    ],
)
def test_bad_pause_is_one_line_and_changes_nothing(cli, queue, arguments, code, text):
    queue.send_delay_msg(1)
    ended = cli("pause", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert text in ended.err
    assert ended.err.count("\n") == 1
    assert queue.counts().paused is None


def test_paused_queue_holds_up_no_other_of_its_worker_and_goes_on_after_resume(cli, redis_url):
    seen = []
    with DelayQueue("paused", url=redis_url) as paused, DelayQueue("other", url=redis_url) as other:
        for queue in (paused, other):
            queue.callback(lambda message, name=queue.name: seen.append(name))
        paused.send_many(range(20))
        other.send_many(range(20))
        assert cli("pause", "paused").code == 0
        worker = Worker({paused: 3, other: 1}, concurrency=2)
        worker.start_consume()
        wait_until(lambda: other.counts().living == 0)
        assert seen == ["other"] * 20
        assert cli("resume", "paused").code == 0
        wait_until(lambda: paused.counts().living == 0)
        worker.stop_consume()
    assert seen[20:] == ["paused"] * 20
