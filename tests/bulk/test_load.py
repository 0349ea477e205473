"""Loading files and Arrow tables without Spark."""

import json
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from delayq import DelayQueue
from delayq.bulk import load, plan, read_rules, read_table, write_table
from delayq.errors import ConfigurationError, DelayqError, PayloadError, PayloadTooLargeError, UnavailableError
from delayq.values.times import from_millis

NOON = datetime(2100, 1, 31, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
THINGS = "id,time,zone\nvisit-1,2099-01-31 09:00,Europe/Berlin\nvisit-2,2099-03-28 14:30,America/New_York\n"
RULES = '[rules.day-before]\noffset = "-1d"\nat = "18:00"\nretries = 5\n'


@pytest.fixture
def queue(redis_url):
    with DelayQueue("q", url=redis_url) as queue:
        yield queue


def hours(n):
    """A message for each hour of n hours around noon."""
    return pa.table(
        {
            "id": [str(one) for one in range(n)],
            "due": pa.array([NOON + (one - n // 2) * HOUR for one in range(n)], pa.timestamp("us", "UTC")),
            "payload": [json.dumps({"n": one}) for one in range(n)],
        }
    )


def counts(info):
    return {name: number for name, number in info.facts().items() if type(number) is int and number}


def test_next_load_of_a_table_adds_the_missing_messages(redis_url, redis_client, queue):
    table = hours(48)
    first = load(table, "q", url=redis_url, start=NOON, until="+6h", run="a")
    assert counts(first) == {"new": 6, "past": 24, "later": 18}
    assert (first.run, first.state, first.start, first.until) == ("a", "committed", NOON, NOON + 6 * HOUR)
    assert (queue.get("24").due, queue.get("24").payload, queue.get("24").retries_left) == (NOON, {"n": 24}, 3)
    assert counts(load(table, "q", url=redis_url, start=NOON, until="+8h")) == {
        "new": 2,
        "exists": 6,
        "past": 24,
        "later": 16,
    }
    assert queue.counts().pending == 8
    assert redis_client.hget("delayq:{q}:meta", "dedupe") == b"86400000 1000000"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "messages.csv",
            (
                "id,due,payload,retries,headers\n"
                'a,2100-01-31T13:00:00+01:00,"{""n"":1}",7,"{""trace"":""x""}"\n'
                "b,2100-01-31T12:00:00.0005Z,2,,\n"
                "c,,3,0,\n"
            ),
        ),
        (
            "messages.jsonl",
            (
                '{"id":"a","due":"2100-01-31T13:00:00+01:00","payload":"{\\"n\\":1}","retries":7,"headers":{"trace":"x"}}\n'
                '{"id":"b","due":"2100-01-31T12:00:00.0005Z","payload":"2"}\n'
                '{"id":"c","payload":"3","retries":0}\n'
            ),
        ),
    ],
)
def test_texts_of_a_file_are_read_as_times_numbers_and_headers(redis_url, queue, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert counts(load(tmp_path / name, "q", url=redis_url, start=NOON)) == {"new": 3}
    found = {id: queue.get(id) for id in "abc"}
    assert [one.payload for one in found.values()] == [{"n": 1}, 2, 3]
    assert [one.retries_left for one in found.values()] == [7, 3, 0]
    assert (found["a"].due, found["a"].headers, found["b"].headers) == (NOON, {"trace": "x"}, {})
    assert found["b"].due == NOON + timedelta(milliseconds=1), "rounded up, so that nothing is early"
    assert found["c"].due < datetime.now(UTC) + HOUR, "due at once"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": ["a"], "payload": [None]}, "row 1 (id 'a'): payload is null"),
        ({"id": ["a"]}, "column payload (STRING or BINARY) is missing; the table has id"),
        ({"id": [1], "payload": ["x"]}, "column id must be STRING, not INT64: write it as a text"),
        ({"id": ["a"], "payload": [{"x": 1}]}, "write it as a text, such as JSON"),
        ({"id": ["a"], "payload": ["1"], "dew": ["now"]}, "unknown column 'dew': did you mean 'due'?"),
        ({"id": ["a"], "payload": ["1"], "xyz": ["now"]}, "unknown column 'xyz': a message has id, due, payload"),
        ({"id": ["a"], "payload": ["1"], "due": ["2100-01-31 12:00"]}, "row 1: due must be a time with its zone"),
        ({"id": ["a"] * 2, "payload": ["1"] * 2, "due": [None, "soon"]}, "row 2: due must be a time with its zone"),
        ({"id": ["a"], "payload": ["1"], "due": [NOON.replace(tzinfo=None)]}, "a local time without a zone"),
        ({"id": ["a"], "payload": ["1"], "due": [NOON.date()]}, "a date has no time of day; write it as a text with"),
        ({"id": ["a"], "payload": ["1"], "due": [4105080000]}, "a number may be seconds or milliseconds; write it as"),
        ({"id": ["a"], "payload": ["1"], "retries": ["many"]}, "row 1: retries must be a whole number, not 'many'"),
        ({"id": ["a"], "payload": ["1"], "headers": ["[1]"]}, "row 1: headers must be an object of texts, not '[1]'"),
        ({"id": ["a"], "payload": ["1"], "headers": [{"n": 1}]}, "headers must be an object of texts in each row"),
        ({"id": ["no spaces"], "payload": ["1"]}, "row 1 (id 'no spaces')"),
    ],
)
def test_invalid_table_is_refused_before_anything_is_sent(redis_url, queue, columns, problem):
    with pytest.raises((ConfigurationError, PayloadError)) as refused:
        load(pa.table(columns), "q", url=redis_url)
    assert problem in str(refused.value)
    assert queue.counts().living == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"on_conflict": "keep"}, "on_conflict must be skip or replace or fail, not 'keep'"),
        ({"on_error": None}, "on_error must be fail or collect, not None"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to"),
        ({"max_rows_per_second": 0}, "max_rows_per_second must be a number above 0, not 0"),
        ({"max_rows_per_second": float("nan")}, "max_rows_per_second must be a number above 0, not nan"),
        ({"default_retries": -1}, "default_retries"),
        ({"max_payload": "1k"}, "max_payload must be a whole number"),
        ({"dedupe_window": "soon"}, "dedupe_window"),
        ({"run": "no spaces"}, "run"),
        ({"prefix": "{"}, "prefix"),
        ({"until": "-1h", "start": "now"}, "until '-1h' must be after start 'now'"),
    ],
)
def test_invalid_option_is_refused(redis_url, options, problem):
    with pytest.raises(ConfigurationError) as refused:
        load(hours(2), "q", url=redis_url, **options)
    assert problem in str(refused.value)


def test_horizon_needs_a_due_time(redis_url):
    with pytest.raises(ConfigurationError, match="need a column due"):
        load(hours(2).drop_columns("due"), "q", url=redis_url, until="+1d")
    assert counts(load(hours(2).drop_columns("due"), "q", url=redis_url, start="now")) == {"new": 2}, "due at once"


@pytest.mark.long
def test_invalid_rows_are_collected_or_stop_the_load(redis_url, queue):
    table = hours(30_000)
    payloads = table["payload"].to_pylist()
    payloads[5], payloads[25_000] = None, "x" * 101
    table = table.set_column(2, "payload", pa.array(payloads))
    with pytest.raises(PayloadTooLargeError) as refused:
        load(table.slice(20_000), "q", url=redis_url, max_payload=100, run="a")
    text = str(refused.value)
    assert text.startswith(
        "row 5001 (id '25000'): payload is 101 bytes, and at most 100 are allowed (option max_payload)"
    )
    assert "set on_error=collect to send the valid ones; run a has stored nothing" in text
    done = load(table, "q", url=redis_url, max_payload=100, on_error="collect", run="a")
    assert counts(done) == {"new": 29_998, "refused": 2}
    assert queue.counts().pending == 29_998
    assert [id for id, _ in queue.refusals("a")] == ["5", "25000"]


def test_row_of_an_error_is_that_of_the_table_not_of_the_rows_sent(redis_url):
    table = hours(10).set_column(2, "payload", pa.array(["1"] * 8 + [None, "1"]))
    with pytest.raises(PayloadError, match=r"^row 9 \(id '8'\)"):
        load(table, "q", url=redis_url, start=NOON)


def test_failed_load_is_resumed_by_the_next_of_the_same_file(redis_url, queue, tmp_path):
    path = tmp_path / "messages.parquet"
    good = hours(25_000)
    write_table(good.set_column(2, "payload", pa.array([*good["payload"].to_pylist()[:-1], None])), path)
    with pytest.raises(PayloadError, match="has stored 20,000 messages, which stay: load again to add the rest"):
        load(path, "q", url=redis_url)
    (failed,) = queue.runs()
    assert (failed.state, failed.new) == ("aborted", 20_000)
    assert load(good, "q", url=redis_url, until=NOON - 12_400 * HOUR).run != failed.run, "another source"
    write_table(good, path)
    resumed = load(path, "q", url=redis_url)
    assert (resumed.run, resumed.state, resumed.new, resumed.exists) == (failed.run, "committed", 25_000, 20_000)
    assert queue.counts().pending == 25_000


def test_conflicts_are_skipped_replaced_or_refused(redis_url, queue):
    load(hours(3), "q", url=redis_url, default_retries=7)
    other = hours(3).set_column(2, "payload", pa.array(['"new"'] * 3))
    assert counts(load(other, "q", url=redis_url)) == {"exists": 3}
    assert queue.get("0").payload == {"n": 0}
    assert counts(load(other, "q", url=redis_url, on_conflict="replace")) == {"replaced": 3}
    assert (queue.get("0").payload, queue.get("0").retries_left) == ("new", 7)  # the table has no retries: they stay
    with pytest.raises(DelayqError, match="which on_conflict=fail does not allow"):
        load(other, "q", url=redis_url, on_conflict="fail")


def test_load_of_a_plan_sends_new_and_cancels_removed_reminders(redis_url, queue, tmp_path):
    things, rules, table = tmp_path / "things.csv", tmp_path / "rules.toml", tmp_path / "plan-1"
    rules.write_text(RULES)
    things.write_text(THINGS)
    first = plan(read_table(things), read_rules(rules))
    write_table(first, table)
    assert counts(load(table, "q", url=redis_url, start="now")) == {"new": 2}
    assert {queue.get(id).retries_left for id in first["id"].to_pylist()} == {5}
    things.write_text(THINGS.replace("01-31", "02-01"))
    second = plan(read_table(things), read_rules(rules), previous=first)
    loaded = load(second, "q", url=redis_url, start="now")
    assert counts(loaded) == {"new": 1, "exists": 1, "cancelled": 1}
    assert loaded.told().endswith("1 new, 1 already there, 1 cancelled")
    assert queue.counts().pending == 2


def test_cancel_that_comes_too_late_is_counted(redis_url, queue):
    queue.send_delay_msg("x", id="running")
    (held,) = queue.lease(n=1)
    table = pa.table({"id": ["running", "gone"], "payload": ["1", "1"], "action": ["cancel", "cancel"]})
    assert counts(load(table, "q", url=redis_url)) == {"too_late": 1}
    held.ack()


def test_empty_table_is_a_run_of_nothing(redis_url):
    assert counts(load(hours(0), "q", url=redis_url, start="now")) == {}


def test_window_of_a_load_keeps_how_many_ids_the_queue_remembers(redis_url, redis_client):
    with DelayQueue("q", url=redis_url, dedupe_window="1h", dedupe_max=5000) as queue:
        queue.open()
        load(hours(1), "q", url=redis_url, dedupe_window="2d")
    assert redis_client.hget("delayq:{q}:meta", "dedupe") == b"172800000 5000"


def test_rate_is_limited(redis_url, monkeypatch):
    waited = []
    monkeypatch.setattr("delayq.bulk.table_sender.RateLimiter.wait", lambda _, rows: waited.append(rows))
    load(hours(10), "q", url=redis_url, max_rows_per_second=4)
    assert waited == [4, 4, 2]


@pytest.mark.long
def test_redis_that_is_away_is_an_error_within_the_deadline():
    with pytest.raises(UnavailableError):
        load(hours(1), "q", url="unix:///nowhere/redis.sock", deadline=0.5)


@pytest.mark.long
def test_interrupted_load_says_what_it_has_stored_and_is_resumed(redis_url, queue, tmp_path, monkeypatch):
    write_table(hours(30_000), tmp_path / "m.parquet")
    from delayq.bulk.message_batches import MessageSender

    send = MessageSender.send

    def interrupt(sender, batch):
        if sender.rows:
            raise KeyboardInterrupt
        send(sender, batch)

    with monkeypatch.context() as patch:
        patch.setattr(MessageSender, "send", interrupt)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            load(tmp_path / "m.parquet", "q", url=redis_url)
    (note,) = interrupted.value.__notes__
    assert re.fullmatch(r"run \S+ has stored 10,000 messages, which stay: load again to add the rest", note)
    (run,) = queue.runs()
    done = load(tmp_path / "m.parquet", "q", url=redis_url)
    assert (done.run, done.new, queue.counts().pending) == (run.run, 30_000, 30_000)


def test_result_is_a_table_in_a_notebook(redis_url):
    html = load(hours(2), "q", url=redis_url, run="a")._repr_html_()
    assert html == (
        "<table><tr><th>run</th><td>a</td></tr><tr><th>state</th><td>committed</td></tr>"
        "<tr><th>new</th><td>2</td></tr></table>"
    )


def test_due_time_of_any_unit_is_an_instant(redis_url, queue):
    for unit in ("s", "ms", "us", "ns"):
        due = pa.array([NOON], pa.timestamp(unit, "Asia/Kathmandu"))
        load(pa.table({"id": [unit], "due": due, "payload": ["1"]}), "q", url=redis_url)
        assert queue.get(unit).due == NOON == from_millis(round(NOON.timestamp() * 1000))


def test_load_beyond_what_the_queue_remembers_says_so(redis_url):
    with DelayQueue("few", url=redis_url, dedupe_window="1h", dedupe_max=2) as few:
        few.open()
    loaded = load(hours(5), "few", url=redis_url)
    assert loaded.unremembered == 3
    assert "remembers settled ids of 2 messages only: raise dedupe_max, else this load" in loaded.told()
    assert load(hours(2), "few", url=redis_url).unremembered == 0
