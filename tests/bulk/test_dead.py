"""Dead messages that are exported and imported are in the other dead letter as they were in theirs."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from delayq import DelayQueue, MessageFailedError, NewMessage
from delayq.bulk import export_messages, import_messages
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.repairing.repair_report import FindingKind

DEAD = (
    b'{"id":"%b","state":"dead","due":"2026-01-31T09:00:00.000Z","retries":2,"attempts":3,"payload":1,'
    b'"died":"2026-01-31T10:00:0%d.000Z","reason":"no","error":"boom"}\n'
)


@pytest.fixture
def other(redis_url):
    with DelayQueue("other", url=redis_url, codec="bytes", events=True) as made:
        made.open()
        yield made


@pytest.fixture
def move(redis_url, tmp_path):
    """`move()` moves all messages of one queue to the other; `move(lines)` imports lines of its own."""

    def run(lines=None, suffix="jsonl", **options):
        file = io.BytesIO(lines) if lines is not None else tmp_path / f"q.{suffix}"
        if lines is None:
            export_messages("q", file, url=redis_url)
        return import_messages(file, "other", url=redis_url, **options)

    return run


@pytest.fixture
def letter(redis_client):
    """`letter("q")` returns the dead letter of a queue byte by byte, but for the tokens, in its order."""

    def read(name):
        parts = (f"delayq:{{{name}}}:{part}" for part in ("dead", "dead_messages"))
        dead, messages = next(parts), redis_client.hgetall(next(parts))
        entries = redis_client.zrange(dead, 0, -1, withscores=True)
        return [(entry.rpartition(b":")[0], died, messages.get(entry)) for entry, died in entries]

    return read


def _die(queue, *messages):
    queue.send_many(messages)
    for message in queue.lease(n=len(messages)):
        if message.retries_left:
            message.reject(f"no {message.id}")
        else:
            message.nack(error="wörld\nTraceback")
    assert not queue.lease().messages  # which collects what was spent


def _defects(queue):
    return [finding for finding in queue.examine(deep=True).findings if finding.kind != FindingKind.SERVER]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_dead_letter_comes_back_as_it_was(queue, other, move, letter, suffix):
    _die(
        queue,
        NewMessage(b'{"to": "ada"}', id="plain", retries=0),
        NewMessage(
            bytes(range(256)), id="r:1", headers={"b": "1", "a": "\u202e"}, name="mail", priority=-3, timeout=1.5
        ),
        NewMessage(b"1", id="soon", expires="90m", missed="drop", retention="1d", unique_for="1h", unique_after="90s"),
        NewMessage(b"1", id="r:2", priority=3),
    )
    queue.send_delay_msg(b"", "1h", id="killed")
    assert queue.kill("killed") == "killed"

    done = move(suffix=suffix)
    assert (done.new, done.dead, done.left_out, done.state) == (5, 5, 0, "committed")
    assert sorted(letter("other")) == sorted(letter("q"))
    assert all(read_death(stored) for _, _, stored in letter("other"))
    mine, theirs = ({one.id: one for one in each.dead.list().messages} for each in (queue, other))
    differs = {"entry", "token"}
    for id, one in mine.items():
        fields = one.__dataclass_fields__.keys() - differs
        assert {name: getattr(one, name) for name in fields} == {name: getattr(theirs[id], name) for name in fields}
    assert not _defects(other)
    events = [event for event in other.events() if event.kind == "dead_imported"]
    assert {event.id: (event.attempt, event.reason, event.run) for event in events} == {
        id: (one.attempts, one.reason, done.run) for id, one in mine.items()
    }
    assert (other.counts().dead, other.stats().totals["dead_imported"], "dead" in other.stats().totals) == (5, 5, False)

    before = letter("other")
    again = move(suffix=suffix)
    assert (again.new, again.exists, again.dead) == (0, 5, 0)
    assert letter("other") == before

    assert other.dead.redrive(all=True).redriven == 5
    found = {message.id: message for message in other.lease(n=9).messages}
    assert found["plain"].retries_left == 0
    assert (found["r:1"].name, found["r:1"].payload, found["r:1"].headers["b"]) == ("mail", bytes(range(256)), "1")


def test_death_of_what_lives_or_was_settled_since_is_left_out(queue, other, move):
    _die(queue, *(NewMessage(b"1", id=id) for id in ("lives", "done", "redriven")))
    other.send_delay_msg(b"new", "1h", id="lives")
    done = move()
    assert (done.new, done.exists) == (2, 1)
    other.dead.redrive("done")
    with other.lease() as message:
        assert message.id == "done"
    other.dead.redrive("redriven")
    again = move()
    assert (again.new, again.exists, again.settled) == (0, 2, 1)
    assert (other.counts().dead, other.get("lives").payload) == (0, b"new")


def test_every_death_of_an_id_is_kept_in_the_order_of_its_times(other, move):
    lines = b"".join(DEAD % (b"a", second) for second in (3, 1, 2))
    assert move(lines).dead == 3
    assert move(lines).exists == 3
    assert [one.died.second for one in other.dead.list().messages] == [1, 2, 3]
    assert other.get("a").died.second == 3
    assert not _defects(other)
    assert other.dead.redrive("a").redriven == 1
    assert [one.died.second for one in other.dead.list().messages] == [1, 2]


def test_message_that_dies_while_it_is_exported_is_dead_once(other, move):
    spent = re.sub(rb',"died".*', b"}", (DEAD % (b"a", 1)).replace(b'"dead"', b'"garbage"'))
    assert move(spent + DEAD % (b"a", 1)).dead == 1
    assert (move(DEAD % (b"a", 1)).dead, move(spent).dead, other.counts().dead) == (0, 0, 1)


@pytest.mark.parametrize("window", [0, "1d"])
def test_last_death_of_an_id_takes_no_other_out_of_the_dead_letter(other, move, window):
    recent = (datetime.now(UTC) - timedelta(hours=1)).isoformat()[:17].encode()
    deaths = [(DEAD % (b"a", second)).replace(b"2026-01-31T10:00:", recent) for second in (1, 2)]
    spent = re.sub(rb',"died".*', b"}", deaths[0].replace(b'"dead"', b'"garbage"')).replace(b"T09", b"T08")
    for lines in (spent, *reversed(deaths)):
        assert move(lines, dedupe_window=window).dead == 1
    assert [one.died.second for one in other.dead.list().messages][:2] == [1, 2]
    for lines in (spent, *deaths):
        assert move(lines, dedupe_window=window).exists == 1
    assert not _defects(other)


def test_dead_letter_keeps_its_own_limit(redis_url, move, other):
    with DelayQueue("other", url=redis_url, dead_max=3) as limited:
        limited.open()
    done = move(b"".join(DEAD % (b"m%d" % n, n) for n in range(9)))
    assert done.dead == 9
    assert [one.id for one in other.dead.list().messages] == ["m6", "m7", "m8"]
    kinds = [event.kind for event in other.events()]
    assert (kinds.count("dead_imported"), kinds.count("dead_trimmed")) == (9, 6)


def test_id_is_reserved_as_after_its_death(queue, other, move):
    _die(queue, NewMessage(b"1", id="reserved", unique_after="1h"), NewMessage(b"1", id="plain"))
    move(dedupe_window=0)
    assert other.send_delay_msg(b"2", id="reserved").status == "settled"
    assert other.send_delay_msg(b"2", id="plain").new
    assert (other.get("plain").state, other.counts().dead) == ("ready", 2)


def test_whoever_asks_for_the_result_learns_why_it_died(queue, other, move):
    _die(queue, NewMessage(b"1", id="a", retention="1d"))
    move()
    with pytest.raises(MessageFailedError, match="no a"):
        other.result("a", timeout=5)


def test_dead_occurrence_of_a_schedule_is_dead_in_its_history(other, move):
    move(DEAD % (b"daily@2026-01-31T09:00:00Z", 1))
    (one,) = other.schedules.history("daily").occurrences
    assert (one.result, one.error, one.attempts) == ("dead", "boom", 0)


def test_many_deaths_and_a_limited_rate(other, move):
    lines = b"".join(DEAD % (b"m%d" % n, n % 10) for n in range(450))
    assert move(lines).dead == 450
    assert move(lines, max_rows_per_second=1e6).exists == 450
    assert other.counts().dead == 450


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("attempts", -1, "attempts must be"),
        ("attempts", 1 << 40, "attempts must be"),
        ("died", "3000-01-01T00:00:00Z", "died must lie between"),
        ("died", "2026-01-01T00:00:00", "not an exported message"),
        ("retries", -1, "retries must be"),
        ("id", "no spaces", "id must be"),
    ],
    ids=range(6),
)
def test_invalid_death_is_refused_and_the_rest_imported(other, move, field, value, error):
    bad = msgspec.json.encode(msgspec.json.decode(DEAD % (b"bad", 1)) | {field: value})
    done = move(bad + b"\n" + DEAD % (b"good", 1))
    assert (done.dead, done.refused) == (1, 1)
    assert re.search(error, done.first_refusal)


def test_long_texts_are_cut_as_of_any_death(other, move):
    line = msgspec.json.decode(DEAD % (b"a", 1)) | {"reason": "ü" * 5000, "error": "e" * 5000}
    del line["died"], line["due"]
    move(msgspec.json.encode(line))
    found = other.get("a")
    assert (found.reason, found.error, found.died is not None) == ("ü" * 2048, "e" * 2048, True)
