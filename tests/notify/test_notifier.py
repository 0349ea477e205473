"""What a notifier tells, how it collapses repeats, and that it loses nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from delayq import DelayqError, DelayQueue, Reject, Retry, ServerError, StopWorker, UnavailableError
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.bulk import move_cold
from delayq.bulk.cold.cold_calls import set_calls
from delayq.cli.admin.acl import Role, rules
from delayq.notify import notices, notifier
from delayq.notify.notices import NoticeKind, read_state
from delayq.notify.notifier import Notifier, Sink
from delayq.notify.watch import PAGE, Watched
from delayq.options import read_settings
from delayq.queue.inspecting.cold_tier import DAY
from tests.support.scripts import without_gaps

HOUR = 3_600_000
KEYS = Keys.of("delayq", "jobs")
SECRET = "s3cr3t payload"


class Bench:
    """A notifier with a clock of the test's own, and what it has told."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self.now = round(datetime.now(UTC).timestamp() * 1000)
        self.local = 0.0
        self.told: list[Any] = []
        self.fails: Exception | None = None
        monkeypatch.setattr(notifier, "monotonic", lambda: self.local)
        self._executors = [open_executor({"url": url}, read_settings({}))]

    def take(self, notice: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.told.append(notice)

    def made(self, *sinks: Any, kinds: Any = tuple(NoticeKind), url: str = "") -> Notifier:
        """Return a notifier that knows only what is in Redis, as after a restart."""
        if url:
            self._executors.append(open_executor({"url": url}, read_settings({})))
        calls = Calls(KEYS, clock=lambda: self.now)
        receivers = [Sink(f"sink {n}", take) for n, take in enumerate(sinks or [self.take])]
        return self.notifier(*receivers, calls=calls, kinds=kinds)

    def notifier(self, *sinks: Sink, calls: Calls | None = None, kinds: Any = tuple(NoticeKind)) -> Notifier:
        """Return a notifier with these sinks."""
        calls = calls or Calls(KEYS, clock=lambda: self.now)
        return Notifier(self._executors[-1], calls, "ops", Watched("delayq", "jobs", kinds, 60_000, HOUR), sinks)

    def turn(self, *, later: int = 0, **options: Any) -> list[str]:
        """Look after some milliseconds, and return the texts that were told."""
        self.now += later
        self.made(**options).turn()
        texts = [notice.payload["text"] for notice in self.told]
        self.told.clear()
        return texts

    def close(self) -> None:
        for executor in self._executors:
            executor.close()


@pytest.fixture
def bench(redis_url, monkeypatch):
    made = Bench(redis_url, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def queue(redis_url):
    with DelayQueue("jobs", url=redis_url, events=True) as made:
        made.open()
        yield made


def die(queue: DelayQueue[Any], *reasons: str) -> None:
    queue.send_many([SECRET] * len(reasons))
    with queue.lease(n=len(reasons)) as leased:
        for message, reason in zip(leased, reasons, strict=True):
            message.reject(reason)


def test_a_group_is_told_once_an_hour_with_the_count_of_the_rest(queue, bench):
    die(queue, "of old")
    assert bench.turn() == []  # what was there before its first run
    die(queue, "no such user 1", "no such user 2", "card expired")
    assert bench.turn() == [
        "jobs: 2 messages moved to the dead letter: no such user #",
        "jobs: 1 message moved to the dead letter: card expired",
    ]
    die(queue, "no such user 3")
    assert bench.turn(later=HOUR // 2) == []
    die(queue, "no such user 4")
    assert bench.turn(later=HOUR // 2) == ["jobs: 2 more messages moved to the dead letter: no such user #"]
    assert bench.turn(later=HOUR) == []
    die(queue, "no such user 5")
    assert bench.turn() == ["jobs: 1 message moved to the dead letter: no such user #"]


def test_a_notice_has_what_leads_to_the_message_and_no_payload(queue, bench, redis_client):
    bench.turn()
    die(queue, "no such user 1")
    bench.made().turn()
    (notice,) = bench.told
    payload = notice.payload
    assert (payload["queue"], payload["kind"], payload["count"]) == ("jobs", "dead", 1)
    assert payload["group"] == queue.dead.groups()[0].group
    assert payload["sample"] == queue.dead.groups()[0].sample
    assert payload["first"] == payload["last"]
    assert re.fullmatch(r"[-\d]+T[:\d]+\.\d{3}Z", payload["first"])
    assert notice.attempt == 1
    assert SECRET not in repr(notice)
    assert SECRET.encode() not in redis_client.hget(KEYS.notifiers, "ops")


def test_without_the_event_log_the_dead_are_counted(redis_url, bench):
    with DelayQueue("jobs", url=redis_url) as queue:
        queue.open()
        bench.turn()
        die(queue, "a", "b")
        assert bench.turn() == ["jobs: 2 messages moved to the dead letter"]
        assert bench.turn() == []
    with DelayQueue("jobs", url=redis_url, events=True) as queue:  # from now on by the log
        die(queue, "c")
        assert bench.turn() == ["jobs: 1 message moved to the dead letter: c"]
        assert bench.turn(later=HOUR) == []


def test_only_what_is_asked_for_is_told(queue, bench):
    bench.turn()
    die(queue, "a")
    queue.pause()
    assert bench.turn(kinds=[NoticeKind.PAUSED]) == ["jobs: paused"]
    assert bench.turn() == []


def test_many_pages_are_read_in_one_turn(queue, bench):
    bench.turn()
    for number in range(PAGE // 3 + 2):
        die(queue, f"reason {number}")  # four entries each
    assert bench.turn() == [f"jobs: {PAGE // 3 + 2} messages moved to the dead letter: reason #"]


@without_gaps
def test_trimmed_events_are_said(queue, bench, redis_client):
    bench.turn()
    queue.send_delay_msg(1)
    bench.turn()
    die(queue, "a", "b")
    last = int(redis_client.xinfo_stream(KEYS.events)["last-generated-id"].split(b"-")[1])
    redis_client.xtrim(KEYS.events, minid=f"0-{last}", approximate=False)
    (text, *_) = bench.turn(kinds=[])
    assert text == f"jobs: {last - 2} events were trimmed before they could be read: raise events_max_len"


def test_a_log_that_was_deleted_is_read_anew(queue, bench, redis_client):
    for _ in range(3):
        die(queue, "a")
    bench.turn()
    redis_client.delete(KEYS.events)
    die(queue, "b")
    assert bench.turn() == ["jobs: 1 message moved to the dead letter: b"]
    assert bench.turn() == []


def test_pauses_are_told_when_they_begin_and_while_they_last(queue, bench):
    bench.turn()
    queue.pause(reason="deploy")
    assert bench.turn() == ["jobs: paused: deploy"]
    assert bench.turn(later=HOUR - 1) == []
    assert bench.turn(later=1) == ["jobs still: paused: deploy"]
    queue.resume()
    assert bench.turn(later=HOUR) == []
    queue.limits.set("mail", running=3)
    queue.pause(name="mail", reason="smtp is down")
    assert bench.turn() == ["jobs: mail is paused: smtp is down"]


def test_a_state_that_nobody_asks_for_any_more_is_not_told_again(queue, bench):
    bench.turn()
    queue.pause()
    assert bench.turn() == ["jobs: paused"]
    assert bench.turn(later=HOUR, kinds=[NoticeKind.DEAD]) == []


def test_late_and_silent_queues(queue, bench):
    bench.turn()
    queue.send_delay_msg(SECRET)
    assert bench.turn() == []
    queue.pause()
    assert bench.turn(later=120_000) == ["jobs: paused"]  # on purpose, and so it is not late
    queue.resume()
    late, silent = bench.turn()
    assert late.startswith("jobs: late: 1 message, the first for 2m")
    assert silent.startswith("jobs: nobody consumes: 1 message, the first for 2m")
    with queue.lease() as message:
        message.ack()
    assert bench.turn(later=HOUR) == []


def test_a_state_that_came_back_within_the_hour_is_told_at_its_end(queue, bench):
    bench.turn()
    queue.pause()
    assert bench.turn() == ["jobs: paused"]
    queue.resume()
    bench.turn()
    queue.pause(reason="again")
    assert bench.turn(later=60_000) == []
    queue.resume()
    assert bench.turn(later=60_000) == []
    assert bench.turn(later=HOUR) == ["jobs again: paused: again"]


def test_failed_deliveries_back_off_and_keep_their_id_and_text(queue, bench):
    bench.turn()
    die(queue, "a")
    bench.fails = Retry("webhook x replied 500")
    running = bench.made()
    running.turn()
    with pytest.raises(DelayqError, match=r"1 notice could not be delivered.*replied 500"):
        running.raise_if_failed()
    stored = bench.made()._executor.client.hget(KEYS.notifiers, "ops")
    bench.fails = None
    running.turn()
    assert bench.told == []  # it waits
    die(queue, "a", "b")
    bench.local += 3600
    running.turn()
    first, second = bench.told
    assert first.id.encode() in stored
    assert first.payload["text"] == "jobs: 1 message moved to the dead letter: a"
    assert first.attempt == 2
    assert second.payload["text"] == "jobs: 1 message moved to the dead letter: b"
    running.raise_if_failed()
    bench.told.clear()
    assert bench.turn(later=HOUR) == ["jobs: 1 more message moved to the dead letter: a"]


def test_a_long_outage_of_a_sink_makes_one_notice_of_a_topic(queue, bench):
    bench.turn()
    bench.fails = Retry("no")
    for _ in range(3):
        die(queue, "a")
        assert bench.turn(later=HOUR) == []
    bench.fails, bench.local = None, 1e6
    assert bench.turn() == ["jobs: 1 message moved to the dead letter: a"]
    assert bench.turn() == ["jobs: 2 more messages moved to the dead letter: a"]  # its hour is long over


def test_a_sink_that_has_a_notice_does_not_get_it_again_for_another(queue, bench):
    bench.turn()
    die(queue, "a")
    other: list[Any] = []
    bench.fails = Retry("no")
    for _ in range(3):
        bench.local += 3600
        bench.made(other.append, bench.take).turn()
    bench.fails = None
    bench.made(other.append, bench.take).turn()
    assert [notice.id for notice in other] == [notice.id for notice in bench.told]
    assert len(other) == 1


class Receiver(Sink):
    """Notes what it gets, or fails."""

    def __init__(self, name: str) -> None:
        super().__init__(name, self.note)
        self.told: list[str] = []
        self.fails: Exception | None = None

    def note(self, notice: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.told.append(notice.payload["text"])


@pytest.mark.parametrize("first", ["good", "bad"])
@pytest.mark.parametrize("error", [Retry("busy"), OSError("no such file")], ids=["retry", "unexpected"])
def test_a_sink_that_fails_holds_up_no_other(queue, bench, first, error, caplog):
    good, bad = Receiver("good"), Receiver("bad")
    running = bench.notifier(*((good, bad) if first == "good" else (bad, good)))
    running.turn()
    bad.fails = error
    for hour in range(3):
        die(queue, "a")
        bench.now += HOUR
        bench.local += 1
        running.turn()
        assert len(good.told) == hour + 1
    assert caplog.text.count("bad did not take a notice, attempt") == 1  # it waits
    bad.fails, bench.local = None, 1e6
    running.turn()
    assert bad.told == good.told
    assert good.told[0] == "jobs: 1 message moved to the dead letter: a"
    running.raise_if_failed()


def test_each_sink_gets_what_it_has_not_taken_after_others_came_and_went(queue, bench):
    good, bad, new = Receiver("good"), Receiver("bad"), Receiver("new")
    bench.notifier(bad, good).turn()
    die(queue, "a")
    bad.fails = Retry("451 try again later")
    bench.notifier(bad, good).turn()
    bench.notifier(new, good).turn()
    assert new.told == good.told == ["jobs: 1 message moved to the dead letter: a"]
    bench.notifier(good).turn()
    assert read_state(bench._executors[0].client.hget(KEYS.notifiers, "ops")).outbox == []
    bad.fails = None
    bench.notifier(bad, good).turn()
    assert bad.told == []


def test_a_notice_that_a_sink_refuses_is_given_up_for_it_alone_and_later_ones_go_on(queue, bench, caplog):
    good, bad = Receiver("good"), Receiver("bad")
    running = bench.notifier(bad, good)
    running.turn()
    die(queue, "a")
    bad.fails = Reject("webhook x replied 404")
    running.turn()
    lines = [record.getMessage() for record in caplog.records if record.name == "delayq.notify"]
    (line,) = [line for line in lines if "gave up" in line]
    assert line.startswith("gave up notice jobs.dead.")
    assert line.endswith("for bad: webhook x replied 404; jobs: 1 message moved to the dead letter: a")
    with pytest.raises(
        DelayqError, match=r"^1 notice given up: bad does not get jobs\.dead\..*: webhook x replied 404$"
    ):
        running.raise_if_failed()
    bad.fails = None
    die(queue, "b")
    running.turn()  # at once: it does not wait
    running.raise_if_failed()
    assert bad.told == ["jobs: 1 message moved to the dead letter: b"]
    assert good.told == ["jobs: 1 message moved to the dead letter: a", *bad.told]


def test_attempts_are_those_of_each_sink(queue, bench):
    attempts: list[tuple[str, int]] = []

    def slow(notice: Any) -> None:
        attempts.append(("slow", notice.attempt))
        raise Retry("busy")

    def quick(notice: Any) -> None:
        attempts.append(("quick", notice.attempt))

    running = bench.made(slow, quick)
    running.turn()
    die(queue, "a")
    for _ in range(2):
        bench.local += 3600
        running.turn()
    assert attempts == [("slow", 1), ("quick", 1), ("slow", 2)]


def test_notices_for_a_sink_that_fails_for_ever_are_bounded(queue, bench, monkeypatch, caplog):
    monkeypatch.setattr(notices, "MAX_OUTBOX", 3)
    good, bad = Receiver("good"), Receiver("bad")
    bad.fails = Retry("busy")
    running = bench.notifier(good, bad)
    running.turn()
    for _ in range(5):
        die(queue, "a")
        bench.now += HOUR
        running.turn()
    assert len(good.told) == 5
    assert caplog.text.count("gave up notice jobs.dead.") == caplog.text.count("for bad: too many wait") == 2
    bad.fails, bench.local = None, 1e6
    running.turn()
    assert bad.told == good.told[2:]


def test_deaths_without_an_event_are_told_though_the_log_is_on_again(queue, bench, redis_url):
    bench.turn()
    redis.Redis.from_url(redis_url).hdel(KEYS.meta, "events")
    die(queue, "a", "b")
    with DelayQueue("jobs", url=redis_url, events=True) as again:
        again.open()
        die(again, "c")
        told = bench.turn()
    assert sorted(told) == [
        "jobs: 1 message moved to the dead letter: c",
        "jobs: 2 messages moved to the dead letter",
    ]
    assert bench.turn(later=HOUR) == []


def test_a_sink_that_takes_nothing_ever_ends_the_notifier_after_the_others_had_their_turn(queue, bench):
    bench.turn()
    die(queue, "a")
    other: list[Any] = []
    bench.fails = StopWorker("the login was refused")
    running = bench.made(bench.take, other.append)
    with pytest.raises(DelayqError, match="the login was refused"):
        running.run(lambda _: False, 10)
    assert [notice.payload["text"] for notice in other] == ["jobs: 1 message moved to the dead letter: a"]
    bench.fails = None
    assert bench.turn() == ["jobs: 1 message moved to the dead letter: a"]  # it is not lost


def test_a_crash_before_the_position_is_kept_repeats_the_same_notice(queue, bench):
    bench.turn()
    die(queue, "a")

    def crash(notice: Any) -> None:
        bench.told.append(notice)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.made(crash).turn()
    die(queue, "a")
    bench.now += 5000
    bench.made().turn()
    first, again = bench.told
    assert (again.id, again.payload) == (first.id, first.payload)


def test_texts_that_a_sink_would_refuse_are_one_printable_line(queue, bench):
    bench.turn()
    die(queue, "evil \u2028\x85\x1b[31mred\u202e\x00 end")
    (text,) = bench.turn()
    assert text.isprintable()
    assert "evil" in text


def test_topics_are_bounded(queue, bench, monkeypatch, redis_client):
    monkeypatch.setattr(notices, "MAX_TOPICS", 3)
    bench.turn()
    die(queue, *"abcdef")
    assert [text.split(" moved")[0] for text in bench.turn()] == [*["jobs: 1 message"] * 3, "jobs: 3 messages"]
    assert len(redis_client.hget(KEYS.notifiers, "ops")) < 2000
    bench.turn(later=HOUR)
    assert b'"topics":{}' in redis_client.hget(KEYS.notifiers, "ops")


def test_a_queue_that_was_removed_stays_away_and_is_told_of_when_it_is_back(queue, bench, redis_client):
    running = bench.made()
    running.turn()
    assert redis_client.exists(KEYS.notifiers)
    assert queue.remove()
    running.turn()
    assert not redis_client.keys("*{jobs}*")
    die(queue, "a")
    running.turn()
    assert [notice.payload["text"] for notice in bench.told] == ["jobs: 1 message moved to the dead letter: a"]


def test_it_goes_on_once_redis_is_back(queue, bench, monkeypatch, caplog):
    running, turns = bench.made(), [None, UnavailableError("gone"), UnavailableError("gone"), None, None]
    ends = iter([False] * 4 + [True])

    def turn(wait: Any) -> None:
        if error := turns.pop(0):
            raise error

    monkeypatch.setattr(running, "turn", turn)
    running.run(lambda _: next(ends), 10)
    assert turns == []
    assert caplog.text.count("gone; the notifier goes on once Redis is back") == 1
    turns[:] = [UnavailableError("gone")]
    with pytest.raises(UnavailableError):  # at the start it ends
        running.run(lambda _: True, 10)


def test_what_another_program_has_written_is_refused(queue, bench, redis_client):
    redis_client.hset(KEYS.notifiers, "ops", "gibberish")
    with pytest.raises(DelayqError, match="cannot be read"):
        bench.turn()


def test_the_rights_of_a_notifier_are_enough_and_no_more(queue, bench, redis_url, redis_client):
    queue.preload()
    redis_client.execute_command("ACL", "SETUSER", "bell", "on", ">secret", *rules([Role.NOTIFIER]))
    url = redis_url.replace("unix://", "unix://bell:secret@")
    try:
        bench.turn(url=url)
        die(queue, "a")
        queue.pause()
        assert len(bench.turn()) == 2
        with DelayQueue("jobs", url=url) as other:
            for refused in (lambda: other.send_delay_msg(1), other.dead.list, other.purge, other.resume):
                with pytest.raises(ServerError):
                    refused()
    finally:
        redis_client.execute_command("ACL", "DELUSER", "bell")


def test_a_cold_tier_that_is_late_is_told_until_it_is_not(queue, bench, redis_url, tmp_path):
    queue.send(SECRET, delay="20d")
    move_cold("jobs", tmp_path / "cold", url=redis_url)
    assert bench.turn() == []
    queue.executor.call(set_calls(queue.context.calls, keep=50 * DAY))
    (told,) = bench.turn()
    assert "should be back from" in told
    assert "run delayq cold" in told
    assert bench.turn(later=HOUR, kinds=[NoticeKind.DEAD]) == []
    move_cold("jobs", tmp_path / "cold", keep="30d", url=redis_url)
    assert bench.turn(later=HOUR) == []
    assert bench.turn(later=HOUR) == []
