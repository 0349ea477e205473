"""Export and import: what a queue holds, written to a file and sent to another queue, is the same."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from delayq import ConfigurationError, DelayQueue, NewMessage, PayloadTooLargeError, UnavailableError
from delayq.broker.requests import Failure
from delayq.bulk import export_messages, import_messages
from delayq.queue.sweeps.stored_messages import read_stored
from delayq.values.states import MESSAGE_STATES
from tests.support.processes import run
from tests.support.waiting import wait_until

LATER = datetime(2099, 1, 31, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAYLOADS = {
    "object": b'{"user":42,"name":"ada","deep":[1,2.5,null,true]}',
    "spaces": b'{"user": 42}',
    "lines": b'{\n  "user": 42\n}\n',
    "escaped": b'"\\u00fc \\u202e"',
    "bidi": '"a\u202eb\x9b"'.encode(),
    "twice": b'{"a":1,"a":2}',
    "big": b"123456789012345678901234567890",
    "float": b"1e5",
    "minus zero": b"-0.0",
    "text": "grüße\n\t".encode(),
    "half": b'"\\ud800"',
    "bytes": bytes(range(256)),
    "empty": b"",
    "deep": b"[" * 5000,
}


@pytest.fixture
def other(redis_url):
    with DelayQueue("other", url=redis_url, codec="bytes") as made:
        yield made


@pytest.fixture
def export(redis_url, tmp_path):
    """`export("q")` returns the lines of a queue, or writes them to a file in `export.folder`."""

    def run(name="q", file=None, **options):
        out = io.BytesIO()
        export_messages(name, out if file is None else file, url=redis_url, **options)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    run.folder = tmp_path
    return run


@pytest.fixture
def to_other(other, redis_url):
    """Import into the other queue."""
    return lambda file, **options: import_messages(file, "other", url=redis_url, **options)


@pytest.fixture
def stored(redis_client):
    """`stored("q")` returns what makes up the waiting messages of a queue, byte by byte."""

    def read(name):
        keys = {part: f"delayq:{{{name}}}:{part}" for part in ("messages", "retries", "headers", "attributes")}
        found = {part: redis_client.hgetall(key) for part, key in keys.items()}
        return found | {"pending": redis_client.zrange(f"delayq:{{{name}}}:pending", 0, -1, withscores=True)}

    return read


@pytest.fixture
def reads(monkeypatch):
    """What has been read of a queue, page by page; after `reads.allowed` of them, an export is interrupted."""

    class Reads(list):
        allowed = 1000

        def __call__(self, *arguments):
            if len(self) == self.allowed:
                raise KeyboardInterrupt
            self.append(arguments)
            return read_stored(*arguments)

    found = Reads()
    monkeypatch.setattr("delayq.bulk.export.read_stored", found)
    return found


@pytest.fixture
def cut(reads, redis_url):
    """`cut(file, 2)` exports two pages of a queue, and is interrupted."""

    def export(file, pages):
        reads.clear()
        reads.allowed = pages
        with pytest.raises(KeyboardInterrupt):
            export_messages("q", file, url=redis_url)
        reads.allowed = 1000
        reads.clear()
        assert not file.exists()

    return export


ALL_OPTIONS = [
    NewMessage(b"1", at=LATER, id="plain"),
    NewMessage(b"1", at=LATER + timedelta(milliseconds=1), id="retries", retries=0),
    NewMessage(b"1", at=LATER, id="headers", headers={"b": "1", "a": "wörld \u202e"}),
    NewMessage(b"1", at=LATER, id="name", name="send:mail/1", priority=-3, timeout=1.5),
    NewMessage(b"1", at=LATER, id="expires", expires=LATER + HOUR, missed="drop"),
    NewMessage(b"1", at=LATER, id="soon", expires="90m"),
    NewMessage(b"1", at=LATER, id="reserved", unique_for="1h", unique_after="90s"),
    NewMessage(b"1", at=LATER, id="kept", retention="1d"),
    NewMessage(b"1", at=LATER, id="hours", hours="SAT 08:00-21:00 except 2098-12-24", tz="Asia/Tokyo"),
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_all_of_a_message_comes_back(queue, export, stored, to_other, suffix):
    queue.send_many(
        [*ALL_OPTIONS, *(NewMessage(data, id=f"p{n}", at=LATER) for n, data in enumerate(PAYLOADS.values()))]
    )
    file = export.folder / f"q.{suffix}"
    export(file=file)
    done = to_other(file)
    assert (done.new, done.dead, done.state) == (len(ALL_OPTIONS) + len(PAYLOADS), 0, "committed")
    assert stored("other") == stored("q")
    assert [path.name for path in export.folder.iterdir()] == [file.name]


def test_payloads_are_json_where_that_is_exact(queue, export):
    queue.send_many([NewMessage(data, id=id.replace(" ", "-"), at=LATER) for id, data in PAYLOADS.items()])
    encodings = {line["id"]: line["encoding"] for line in export()}
    assert {id for id, encoding in encodings.items() if encoding == "json"} == {"object", "bidi", "big", "minus-zero"}
    assert encodings["bytes"] == "base64"


def test_line_has_the_fields_that_the_message_has(queue, export):
    queue.send_many(ALL_OPTIONS)
    lines = {line.pop("id"): line for line in export()}
    plain = {"state": "pending", "retries": 3, "attempts": 0, "payload": 1, "encoding": "json"}
    plain["due"] = "2099-01-31T09:00:00.000Z"
    assert lines["plain"] == plain
    assert lines["name"] == plain | {"name": "send:mail/1", "priority": -3, "timeout": 1.5}
    assert lines["expires"] == plain | {"expires": "2099-01-31T10:00:00.000Z", "missed": "drop"}
    assert lines["soon"] == plain | {"expires_after": 5400}
    assert lines["reserved"] == plain | {"unique_for": 3600, "unique_after": 90}
    assert lines["hours"] == plain | {"hours": "SAT 08:00-21:00 except 2098-12-24", "tz": "Asia/Tokyo"}
    assert lines["kept"] == plain | {"retention": 86400}


@pytest.fixture
def everywhere(queue):
    """The queue, with a message in each state but garbage, each named after it."""
    queue.send_many([NewMessage(b"1", id=id, retries=2) for id in ("active", "backoff", "dead")])
    for message in queue.lease("1h", n=3):
        if message.id == "backoff":
            message.nack(delay="1h", error="busy")
        elif message.id == "dead":
            message.reject("no such user")
        else:
            message.delivery.settled = True  # it stays leased
    queue.send_delay_msg(b"1", id="retry", retries=2)
    with queue.lease("100ms") as message:
        message.delivery.settled = True
    wait_until(lambda: queue.stats().at > queue.get("retry").deadline)
    queue.pause(name="mail")
    queue.send_many([NewMessage(b"1", id="throttled", name="mail", retries=2), NewMessage(b"1", id="plug")])
    with queue.lease("1h") as message:
        assert message.id == "plug"
    queue.send_many([NewMessage(b"1", id="plug"), NewMessage(b"1", id="ready", retries=2)])
    (message,) = queue.lease("1h", n=1)
    assert message.id == "plug" or message.release()
    return queue


def test_each_state_is_exported(everywhere, export):
    lines = {line["id"]: line for line in export()}
    states = {id: line["state"] for id, line in lines.items()}
    assert {id: state for id, state in states.items() if id != "plug"} == {
        id: id for id in ("active", "backoff", "dead", "retry", "throttled", "ready")
    }
    assert (lines["backoff"]["error"], lines["backoff"]["retries"], lines["backoff"]["attempts"]) == ("busy", 1, 1)
    assert (lines["dead"]["reason"], lines["dead"]["retries"]) == ("no such user", 2)
    assert lines["dead"]["died"]


@pytest.mark.parametrize("state", MESSAGE_STATES, ids=str)
def test_states_are_selected(everywhere, export, state):
    wanted = [line["id"] for line in export() if line["state"] == state]
    assert [line["id"] for line in export(states=[state])] == wanted


def test_living_messages_wait_and_dead_ones_may_be_left_out(everywhere, other, export, to_other, tmp_path):
    export(file=tmp_path / "q.jsonl")
    done = to_other(tmp_path / "q.jsonl", dead="skip")
    assert (done.new, done.dead, done.left_out) == (6, 0, 1)
    assert (other.counts().pending + other.counts().ready) == 6
    assert [other.get(id).retries_left for id in ("active", "backoff", "retry")] == [2, 1, 1]
    assert other.get("throttled").name == "mail"
    done = to_other(tmp_path / "q.jsonl", dead="send")
    assert (done.new, done.exists, done.dead) == (1, 6, 0)
    again = other.get("dead")
    assert (again.state, again.retries_left, again.attempts) == ("ready", 2, 0)


def test_message_about_to_die_is_dead(queue, other, export, to_other):
    queue.send_delay_msg(b"1", id="a", retries=1)
    with queue.lease() as message:
        message.nack(delay=0)
    (message,) = queue.lease(block=5)
    calls = queue.context.calls  # a lease would also move it to the dead letter
    assert queue.executor.call(calls.nack([Failure("a", queue.get("a").token, 0, "busy")])) == "2"
    message.delivery.settled = True
    (line,) = export()
    assert (line["state"], line["retries"], line["attempts"]) == ("garbage", 1, 2)
    export(file=export.folder / "q.jsonl")
    assert to_other(export.folder / "q.jsonl").dead == 1
    dead = other.get("a")
    assert (dead.state, dead.reason, dead.error, dead.attempts) == ("dead", "retries spent", "busy", 2)
    assert to_other(export.folder / "q.jsonl").exists == 1
    assert other.dead.redrive("a").redriven == 1
    assert other.get("a").retries_left == 1


def test_dead_message_begins_anew(queue, other, export, to_other, tmp_path):
    expired = NewMessage(b"1", id="r:1", name="mail", expires="1h", missed="drop", retries=1)
    queue.send_many([expired])
    with queue.lease() as message:
        message.release(delay=0.01)
    wait_until(lambda: queue.counts().overdue)
    with queue.lease() as message:
        assert message.snoozes
        message.reject("no such user")
    export(file=tmp_path / "q.jsonl")
    assert to_other(tmp_path / "q.jsonl", dead="send").new == 1
    again = other.get("r:1")
    assert (again.name, again.expires, again.snoozes) == ("mail", None, 0)


def test_message_with_its_id_stays_as_it_is(queue, other, export, to_other, tmp_path):
    queue.send_many([NewMessage(b"new", id="a", at=LATER), NewMessage(b"new", id="b", at=LATER)])
    other.send_delay_msg(b"old", "1h", id="a")
    export(file=tmp_path / "q.jsonl")
    done = to_other(tmp_path / "q.jsonl")
    assert (done.new, done.exists) == (1, 1)
    assert other.get("a").payload == b"old"


def test_what_was_processed_after_an_import_is_not_sent_again(queue, other, export, to_other, tmp_path):
    queue.send_delay_msg(b"1", id="a")
    export(file=tmp_path / "q.jsonl")
    to_other(tmp_path / "q.jsonl")
    with other.lease() as message:
        assert message.id == "a"
    done = to_other(tmp_path / "q.jsonl")
    assert (done.new, done.settled) == (0, 1)


def test_snoozes_stay(queue, other, export, to_other, tmp_path):
    queue.send_delay_msg(b"1", id="a", name="mail")
    with queue.lease() as message:
        message.release(delay="1h")
    export(file=tmp_path / "q.jsonl")
    to_other(tmp_path / "q.jsonl")
    assert (other.get("a").snoozes, other.get("a").name) == (1, "mail")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_empty_queue_is_an_empty_file(queue, export, to_other, suffix):
    queue.open()
    file = export.folder / f"q.{suffix}"
    export(file=file)
    assert to_other(file).new == 0


def test_many_messages_make_a_round_trip(queue, export, stored, to_other):
    queue.send_many(
        [
            NewMessage(b'{"n":%d}' % n, id=f"{n}", at=LATER + timedelta(seconds=n % 997), headers={"n": str(n)})
            for n in range(1_000)
        ]
    )
    first, second = export.folder / "first.jsonl", export.folder / "second.jsonl"
    told = []
    export(file=first, report=told.append)
    assert (told[-1], len(told)) == (
        1_000,
        4 + 3,
    )  # and empty ones: at the end, of what has moved on, and of the dead
    reported = []
    assert to_other(first, report=lambda done, total: reported.append((done, total))).new == 1_000
    assert reported[-1] == (first.stat().st_size, first.stat().st_size)
    export("other", second)
    assert first.read_bytes() == second.read_bytes()
    assert stored("other") == stored("q")


def test_large_payloads_are_read_in_small_calls(queue, export):
    queue.send_many([NewMessage(bytes([65 + n]) * 700_000, id=f"{n}", at=LATER) for n in range(4)])
    queue.send_many([NewMessage(bytes([75 + n]) * 700_000, id=f"d{n}") for n in range(6)])
    for message in queue.lease(n=3):
        message.reject("no such user")
    for message in queue.lease(n=3):
        message.release()
    lines = {line["id"]: line for line in export()}
    assert {id: (line["payload"][0], len(line["payload"])) for id, line in lines.items()} == {
        **{f"{n}": (chr(65 + n), 700_000) for n in range(4)},
        **{f"d{n}": (chr(75 + n), 700_000) for n in range(6)},
    }


# Interrupted exports


@pytest.mark.parametrize("name", [*(f"{pages}.jsonl" for pages in (0, 1, 3, 4, 5)), "1.parquet", "5.parquet"])
def test_export_goes_on_after_so_many_pages(queue, export, reads, cut, name):
    queue.send_many([NewMessage(b"1", id=f"d{n}") for n in range(300)])
    for message in queue.lease(n=300):
        message.reject("no such user")
    queue.send_many([NewMessage(b"1", id=f"{n}", at=LATER) for n in range(600)])
    whole, file = export.folder / f"whole{name}", export.folder / name
    export(file=whole)
    pages = int(file.stem)
    cut(file, pages)
    export(file=file, resume=True)
    assert len(reads) == 6 - pages
    assert file.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in export.folder.iterdir()) == sorted([whole.name, file.name])


@pytest.mark.parametrize("pages", [1, 2])
def test_scan_that_was_interrupted_begins_anew(queue, export, cut, pages):
    queue.send_many([NewMessage(b"1", id=f"{n}") for n in range(800)])
    for message in queue.lease(n=800):
        message.nack(delay="1h")
    cut(export.folder / "q.jsonl", pages)
    export(file=export.folder / "q.jsonl", resume=True)
    ids = [json.loads(line)["id"] for line in (export.folder / "q.jsonl").read_bytes().splitlines()]
    assert sorted(ids) == sorted(f"{n}" for n in range(800))


@pytest.fixture
def half(queue, export, cut):
    """A file of which 250 of 300 messages have been exported."""
    queue.send_many([NewMessage(b"1", id=f"{n}", at=LATER) for n in range(300)])
    file = export.folder / "q.jsonl"
    cut(file, 1)
    return file


def test_export_without_resume_begins_anew(half, export, reads):
    export(file=half)
    assert len(half.read_bytes().splitlines()) == 300
    assert len(reads) == 4


def test_what_was_written_after_the_last_note_is_written_again(half, export):
    with (export.folder / ".q.jsonl.part").open("ab") as part:
        part.write(b'{"id":"half')
    export(file=half, resume=True)
    assert len({json.loads(line)["id"] for line in half.read_bytes().splitlines()}) == 300


def test_part_that_has_lost_its_end_is_written_anew(half, export):
    with (export.folder / ".q.jsonl.part").open("r+b") as part:
        part.truncate(100)
    export(file=half, resume=True)
    assert len({json.loads(line)["id"] for line in half.read_bytes().splitlines()}) == 300


def test_export_of_other_messages_is_not_resumed(half, export):
    with pytest.raises(
        ConfigurationError, match="the export that was interrupted is of queue q under the prefix delayq"
    ):
        export(file=half, states=["dead"], resume=True)
    export(file=half, resume=True)
    assert len(half.read_bytes().splitlines()) == 300


def test_one_export_writes_a_file(queue, redis_url, tmp_path):
    queue.send_delay_msg(b"1", "1h")
    again = []

    def report(_):
        with pytest.raises(ConfigurationError) as refused:
            export_messages("q", tmp_path / "q.jsonl", url=redis_url)
        again.append(str(refused.value))

    export_messages("q", tmp_path / "q.jsonl", url=redis_url, report=report)
    assert set(again) == {f"another export to {tmp_path / 'q.jsonl'} is running"}


# Processes that are killed

KILLED_EXPORT = """
import os, sys
from delayq.broker.requests import Failure
from delayq.bulk import export_messages
url, file = sys.argv[1:]
export_messages("q", file, url=url, report=lambda done: done >= 4000 and os.kill(os.getpid(), 9))
"""
KILLED_IMPORT = """
import os, sys
from delayq.broker.requests import Failure
from delayq.bulk import import_messages
from delayq.bulk.files import message_files
url, file = sys.argv[1:]
message_files.BATCH_BYTES = os.path.getsize(file) * 3 // 10
import_messages(file, "other", url=url, report=lambda done, total: done > total // 2 and os.kill(os.getpid(), 9))
"""


@pytest.mark.long
def test_round_trip_survives_killed_processes(queue, other, export, stored, to_other):
    queue.send_many([NewMessage(b'{"n":%d}' % n, id=f"{n}", at=LATER + timedelta(seconds=n)) for n in range(10_000)])
    file = export.folder / "q.jsonl"

    def killed(program):
        ended = run([sys.executable, "-c", program, queue._options["url"], str(file)])
        assert ended.returncode == -signal.SIGKILL

    killed(KILLED_EXPORT)
    assert not file.exists()
    export(file=file, resume=True)
    assert len(file.read_bytes().splitlines()) == 10_000
    killed(KILLED_IMPORT)
    (cut,) = other.runs()
    assert 5000 < cut.new < 7000
    done = to_other(file)
    assert (done.run, done.state, done.new, done.exists) == (cut.run, "committed", 10_000, cut.new)
    assert stored("other") == stored("q")


def test_lines_of_the_version_before_are_imported(other, to_other, tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_bytes(b'{"id":"r1","payload":1,"missed":"drop","after_outage":"latest"}\n')
    assert to_other(file, strict=True).new == 1
    assert other.get("r1") is not None


# Bad input


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{", "not an exported message: Input data was truncated"),
        (b"[]", "not an exported message: Expected `object`, got `array`"),
        (b'{"id":"a"}', "not an exported message: Object missing required field `payload`"),
        (b'{"id":"a","payload":1,"nme":"x"}', "not an exported message: Object contains unknown field"),
        (b'{"id":"no spaces","payload":1}', "(id 'no spaces'): id must be"),
        (b'{"id":"a","payload":1,"due":"2099-01-01T00:00"}', "not an exported message"),
        (b'{"id":"a","payload":1,"due":"3000-01-01T00:00:00Z"}', "due must lie between"),
        (b'{"id":"a","payload":1,"retries":-1}', "retries must be"),
        (b'{"id":"a","payload":1,"state":"completed"}', "state must be one of"),
        (b'{"id":"a","payload":1,"encoding":"text"}', "payload must be a text, as its encoding is text"),
        (b'{"id":"a","payload":"?","encoding":"base64"}', "payload is not base64"),
        (b'{"id":"a","payload":1,"name":"no spaces"}', "name must be"),
        (b'{"id":"a","payload":1,"priority":1000}', "priority must be"),
        (b'{"id":"a","payload":1,"headers":{"a":1}}', "not an exported message: Expected `str`, got `int`"),
        (b'{"id":"a","payload":1,"timeout":-1}', "timeout must be"),
        (b"\xff", "not an exported message"),
    ],
    ids=range(16),
)
def test_invalid_line_is_named_and_the_rest_is_sent_unless_it_is_strict(other, to_other, tmp_path, line, error):
    file = tmp_path / "q.jsonl"
    file.write_bytes(b'{"id":"good","payload":1}\n\n' + line + b'\n{"id":"more","payload":1}\n')
    with pytest.raises(ConfigurationError) as refused:
        to_other(file, strict=True)
    text = str(refused.value)
    assert text.startswith(f"{file}:3")
    assert error in text
    assert text.endswith("; nothing was sent")
    assert other.counts().living == 0
    assert other.runs() == []
    done = to_other(file, run="a")
    assert (done.new, done.refused) == (2, 1)
    assert f"{done.first_refusal}; nothing was sent" == text
    ((_, reason),) = other.refusals("a")
    assert reason == done.first_refusal


def test_invalid_lines_among_many_are_named_by_their_number(other, to_other, tmp_path):
    """Lines are read 200 at a time: those of the first, of a later and of the last part, beside blank ones."""
    lines = [b'{"id":"%d","payload":%d}\n' % (n, n) for n in range(1, 651)]
    wrong = {1: b"{}\n", 401: b'{"id":"401","payload":1,"retries":-1}\n', 402: b"[\n", 650: b'{"id":"","payload":1}'}
    blank, dead = {200: b"\n", 403: b"  \n"}, {399: b'{"id":"399","payload":1,"state":"dead"}\n'}
    for number, line in {**wrong, **blank, **dead}.items():
        lines[number - 1] = line
    (tmp_path / "q.jsonl").write_bytes(b"".join(lines))
    done = to_other(tmp_path / "q.jsonl", run="a")
    assert (done.new, done.refused, done.dead) == (650 - 4 - 2, 4, 1)
    places = [
        (id, reason.partition(": ")[0].removeprefix(f"{tmp_path}/q.jsonl:")) for id, reason in other.refusals("a")
    ]
    assert places == [("", "1"), ("401", "401 (id '401')"), ("", "402"), ("", "650")]
    assert [other.get(str(number)) is None for number in (399, 400, 401, 403, 404)] == [False, False, True, True, False]


def test_line_needs_an_id_and_a_payload_only(other, to_other):
    assert to_other(io.BytesIO(b'{"id":"a","payload":{"x":1}}\n{"id":"b","payload":2,"headers":null}')).new == 2
    found = other.get("a")
    assert (found.payload, found.retries_left, found.state) == (b'{"x":1}', 3, "ready")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("dead", ["keep", "send"])
def test_payload_that_is_too_long_is_refused_by_its_line_and_the_rest_is_sent(queue, export, to_other, suffix, dead):
    ids = {"a": 10, "long": 1_001, "b": 1_000}
    queue.send_many([NewMessage(b"x" * size, id=id, at=LATER) for id, size in ids.items()])
    queue.send_many([NewMessage(b"x" * size, id=f"dead-{id}") for id, size in ids.items()])
    for message in queue.lease(n=3):
        message.reject("no such user")
    file = export.folder / f"q.{suffix}"
    export(file=file)
    done = to_other(file, max_payload=1_000, dead=dead)
    assert (done.new, done.refused) == (4, 2)
    text = f"{file}:3 (id 'long'): payload is 1001 bytes, and at most 1000 are allowed"
    assert done.first_refusal == text
    with pytest.raises(PayloadTooLargeError, match="at most 1000 are allowed; nothing was sent"):
        to_other(file, max_payload=1_000, dead=dead, strict=True)
    assert to_other(file, dead=dead).new == 2


def test_line_longer_than_any_payload_is_refused_without_being_read_as_a_whole(to_other, monkeypatch):
    monkeypatch.setattr("delayq.bulk.files.message_files.REST_OF_LINE", 100)
    long = b'{"id":"long","payload":"%s"}' % (b"x" * 5_000)
    lines = [b'{"id":"a","payload":1}', long, b'{"id":"b","payload":2}', long]

    class Stream(io.BytesIO):
        def readline(self, size):
            assert size <= 6 * 10 + 101
            return super().readline(size)

    done = to_other(Stream(b"\n".join(lines)), max_payload=10, run="r")
    assert (done.new, done.refused) == (2, 2)
    assert done.first_refusal == "stdin:2: the line is longer than 160 bytes"


def test_byte_order_mark_is_skipped_and_utf_16_is_refused(to_other):
    lines = '{"id":"a","payload":1}\n{"id":"b","payload":1}\n'
    assert to_other(io.BytesIO(lines.encode("utf-8-sig"))).new == 2
    with pytest.raises(ConfigurationError, match="cannot read stdin: it is UTF-16: save it as UTF-8"):
        to_other(io.BytesIO(lines.encode("utf-16")))


def test_column_of_parquet_that_is_there_twice_is_named(to_other, tmp_path):
    columns = [pa.array(["a"]), pa.array([b"1"]), pa.array([b"2"])]
    parquet.write_table(pa.table(columns, ["id", "payload", "payload"]), tmp_path / "q.parquet")
    with pytest.raises(ConfigurationError, match="column payload is there 2 times"):
        to_other(tmp_path / "q.parquet")


def test_stream_is_named_in_errors(to_other):
    lines = b'{"id":"a","payload":1}\n{}\n'
    assert to_other(io.BytesIO(lines)).first_refusal.startswith("stdin:2: not an exported message")
    with pytest.raises(ConfigurationError, match="strict needs a file"):
        to_other(io.BytesIO(lines), strict=True)


def test_an_export_that_loses_redis_says_so(queue, export, tmp_path, monkeypatch):
    def lost(*_, **__):
        raise UnavailableError("Redis cannot be reached")

    queue.send_delay_msg(b"1", "1h")
    monkeypatch.setattr("delayq.bulk.export.read_stored", lost)
    with pytest.raises(UnavailableError, match=r"^Redis cannot be reached$"):
        export(file=tmp_path / "lost.jsonl")


def test_a_named_pipe_is_read_like_a_stream(to_other, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[b'{"id":"a","payload":1}\n'])
    writer.start()
    assert to_other(tmp_path / "pipe").new == 1
    writer.join()
    with pytest.raises(ConfigurationError, match="strict needs a file"):
        to_other(tmp_path / "pipe", strict=True)


def test_files_that_cannot_be_used_are_refused(queue, redis_url, tmp_path, to_other):
    queue.send_delay_msg(b"1", "1h")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    for call, error in (
        (lambda: to_other(tmp_path / "gone.jsonl"), "there is no file"),
        (lambda: to_other(tmp_path / "bad.parquet"), "cannot read"),
        (lambda: to_other(tmp_path), "there is no file"),
        (lambda: to_other(tmp_path / "bad.parquet", dead="bury"), "dead must be 'keep', 'send' or 'skip', not 'bury'"),
        (lambda: export_messages("q", tmp_path, url=redis_url), "is a folder"),
        (
            lambda: export_messages("q", tmp_path / "q.csv", url=redis_url),
            "ends with .csv, not with one of .*list --csv",
        ),
        (lambda: export_messages("q", tmp_path / "q.gz", url=redis_url), "ends with .gz, not with one of .jsonl, .nd"),
        (lambda: to_other(tmp_path / "q.csv"), "ends with .csv, not with one of .*; `delayq load` reads CSV"),
        (lambda: export_messages("q", tmp_path / "no" / "q.jsonl", url=redis_url), "cannot write"),
        (lambda: export_messages("nowhere", tmp_path / "q.jsonl", url=redis_url), "there is no queue 'nowhere'"),
        (lambda: export_messages("q", tmp_path / "q.jsonl", url=redis_url, states=["completed"]), "states must be"),
        (lambda: export_messages("q", tmp_path / "q.jsonl", url=redis_url, states="dead"), "states must be"),
    ):
        with pytest.raises(ConfigurationError, match=error):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["bad.parquet"]


def test_interrupted_import_is_resumed(queue, other, export, to_other, monkeypatch):
    queue.send_many([NewMessage(b"1", id=f"{n:03}", at=LATER) for n in range(500)])
    export(file=export.folder / "q.jsonl")
    two_fifths = (export.folder / "q.jsonl").stat().st_size * 2 // 5
    monkeypatch.setattr("delayq.bulk.files.message_files.BATCH_BYTES", two_fifths - 1)  # and the rest of a line

    def interrupt(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        to_other(export.folder / "q.jsonl", report=interrupt)
    (run,) = other.runs()
    assert interrupted.value.__notes__ == [
        f"run {run.run} has stored 400 messages, which stay: import again to add the rest"
    ]
    done = to_other(export.folder / "q.jsonl")
    assert (done.run, done.new, done.exists) == (run.run, 500, 400)
