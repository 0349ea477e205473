"""Payloads: JSON, typed JSON, text, bytes, custom codecs and bytes that cannot be decoded."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import IntEnum
from typing import Annotated

import msgspec
import pydantic
import pytest

from delayq import ConfigurationError, NewMessage, NoResultError, PayloadError
from tests.behaviour.places import everywhere

pytestmark = everywhere


class Reminder(msgspec.Struct, frozen=True):
    user: int
    text: str = ""


@dataclass(frozen=True)
class Point:
    x: float
    y: float


class Level(IntEnum):
    HIGH = 1


class Mail(pydantic.BaseModel):
    to: str


class Letter(pydantic.BaseModel):
    text: str


def roundtrip(queue, payload):
    """Return a payload as the callback gets it."""
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.send_delay_msg(payload)
    queue.run(burst=True)
    return seen


@pytest.mark.parametrize(
    "payload", [None, True, 0, -1.5, 2**63, "", "日本語 🙂", [], [1, [2]], {}, {"a": {"b": None}}], ids=repr
)
def test_plain_json_survives_the_round_trip(open_queue, payload):
    assert roundtrip(open_queue(), payload) == [payload]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Reminder, Reminder(42, "dentist")),
        (Point, Point(1.5, -2)),
        (int, 42),
        (list[Reminder], [Reminder(1)]),
        (Reminder | int, 42),
        (Annotated[Reminder, "known"], Reminder(1)),
        (Annotated[int, msgspec.Meta(ge=0)], 42),
        (Mail, Mail(to="Ada")),
        (Mail | Letter, Letter(text="hello")),
    ],
    ids=["struct", "dataclass", "int", "list", "union", "annotated", "constrained", "pydantic", "models"],
)
def test_typed_payload_is_delivered_as_its_type(open_queue, kind, payload):
    assert roundtrip(open_queue(payload_type=kind), payload) == [payload]


@pytest.mark.parametrize("codec", ["text", "bytes"])
def test_text_and_bytes_survive_the_round_trip(open_queue, codec):
    payload = "\0 日本語\r\n" if codec == "text" else bytes(range(256))

    assert roundtrip(open_queue(codec=codec), payload) == [payload]


def test_payload_of_one_mebibyte_is_accepted(open_queue):
    payload = bytes(1 << 20)

    assert roundtrip(open_queue(codec="bytes"), payload) == [payload]


def test_codec_is_any_object_with_encode_and_decode(open_queue):
    class Deflated:
        def encode(self, payload):
            return zlib.compress(payload.encode())

        def decode(self, data):
            return zlib.decompress(data).decode()

    queue = open_queue(codec=Deflated())

    assert roundtrip(queue, "x" * 10_000) == ["x" * 10_000]


@pytest.mark.parametrize(
    ("options", "payload"),
    [
        ({}, object()),
        ({}, {1: {2: {3}, object(): 4}}),
        ({}, "\ud800"),
        ({"payload_type": Reminder}, {"user": 42}),
        ({"payload_type": int}, "42"),
        ({"codec": "text"}, b"bytes"),
        ({"codec": "bytes"}, "text"),
    ],
    ids=["object", "keys", "surrogate", "dict for a struct", "str for an int", "bytes for text", "text for bytes"],
)
def test_payload_of_wrong_type_is_refused(open_queue, options, payload):
    queue = open_queue(**options)

    with pytest.raises(PayloadError):
        queue.send_delay_msg(payload)

    assert queue.counts().living == 0


def test_an_unknown_codec_is_refused(open_queue):
    with pytest.raises(ConfigurationError, match="codec must be"):
        open_queue(codec="pickle")


BROKEN = {
    "no JSON": b"\xff\xfe",
    "cut off": b'{"user": 4',
    "another type": b'{"user": "forty-two"}',
    "nothing": b"",
    "nested too deep": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("stored", BROKEN.values(), ids=BROKEN)
def test_undecodable_payload_goes_to_the_dead_letter_and_the_worker_continues(open_queue, stored):
    open_queue(codec="bytes").send_delay_msg(stored, id="m", retries=1)

    assert roundtrip(open_queue(payload_type=Reminder, nack_delay=0), Reminder(42)) == [Reminder(42)]

    message = open_queue(payload_type=Reminder).get("m")
    assert (message.state, message.attempts) == ("dead", 2)
    assert message.reason.startswith("undecodable")
    assert message.payload == stored


def test_undecodable_payload_is_retried_so_that_a_newer_worker_can_take_it(open_queue, caplog):
    newer = open_queue(payload_type=Reminder, nack_delay=0, events=True)
    newer.send_delay_msg(Reminder(42), id="m")
    older = open_queue(payload_type=int, nack_delay="200ms")
    with older.lease(n=1) as messages:
        assert messages == []
    found = older.get("m")
    assert (found.state, found.retries_left) == ("backoff", 2)
    assert found.error.startswith("undecodable")
    assert "m failed at attempt 1" in caplog.text

    seen = []
    newer.callback(lambda message: seen.append((message.payload, message.attempt)))
    newer.run(burst=True)

    assert seen == [(Reminder(42), 2)]
    totals = newer.stats().totals
    assert (totals["nacked"], totals["acked"], totals.get("rejected", 0)) == (1, 1, 0)
    assert [event.kind for event in newer.events() if event.kind in ("nacked", "dead", "acked")] == ["nacked", "acked"]


def test_event_of_a_death_has_the_reason_undecodable(open_queue):
    queue = open_queue(payload_type=int, events=True, callback=print)
    open_queue(codec="bytes").send_delay_msg(b"x", retries=0)

    queue.run(burst=True)

    (dead,) = [event for event in queue.events() if event.kind == "dead"]
    assert dead.reason.startswith("undecodable")


def test_message_is_undecodable_if_its_codec_raises(open_queue):
    class Broken:
        def encode(self, payload):
            return b"anything"

        def decode(self, data):
            raise RuntimeError("no decoder")

    queue = open_queue(codec=Broken(), default_retries=0)

    assert roundtrip(queue, "hello") == []
    (dead,) = queue.dead.list().messages
    assert dead.reason.startswith("undecodable")
    assert "no decoder" in dead.reason


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_codec_that_would_end_the_program_costs_one_attempt_and_is_logged(open_queue, caplog, error):
    class Broken:
        def encode(self, payload):
            return payload.encode()

        def decode(self, data):
            raised.append(data)
            if len(raised) == 1:
                raise error
            return data.decode()

    def see(message):
        seen.append((message.payload, message.attempt))

    raised, seen = [], []
    queue = open_queue(codec=Broken(), callback=see, nack_delay=0)
    queue.send_many(["first", "second"])

    queue.run(burst=True)

    assert sorted(seen) == [("first", 2), ("second", 1)]
    (record,) = [record for record in caplog.records if record.name == "delayq.consumer"]
    assert "failed at attempt 1 to be decoded" in record.getMessage()


def test_lease_skips_undecodable_messages(open_queue):
    open_queue(codec="bytes").send_delay_msg(b"\xff", id="m", retries=0)
    queue = open_queue(payload_type=Reminder)
    queue.send_delay_msg(Reminder(42))

    with queue.lease(n=10, block=5) as messages:
        assert [message.payload for message in messages] == [Reminder(42)]
    assert queue.get("m").reason.startswith("undecodable")


class Safe(str):
    """A text such as those of Django and MarkupSafe."""

    __slots__ = ()


def by_send(queue, value):
    return roundtrip(queue, value)[0]


def by_batch(queue, value):
    queue.send_many([{"plain": 1}, value, NewMessage(value, name="n")])
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    assert seen[1] == seen[2]
    return seen[1]


def by_schedule(queue, value):
    queue.schedules.add("daily", every="1d", payload=value)
    queue.schedules.run_now("daily")
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    return seen[0]


def by_argument(queue, value):
    seen = []
    queue.task(name="remind")(lambda what: seen.append(what)).send(value)
    queue.run(burst=True)
    return seen[0]


def by_result(queue, value):
    queue.callback(lambda _: value)
    sent = queue.send_delay_msg(1, retention="1d")
    queue.run(burst=True)
    try:
        return queue.result(sent.id, timeout=0)
    except NoResultError as error:
        raise PayloadError(str(error)) from error


def by_hand(queue, value):
    sent = queue.send_delay_msg(1, retention="1d")
    (message,) = queue.lease("60s", n=1, block=5)
    message.ack(value)
    return queue.result(sent.id, timeout=0)


def by_progress(queue, value):
    queue.send_delay_msg(1, id="m")
    (message,) = queue.lease("60s", n=1, block=5)
    message.report(value)
    return queue.get("m").progress


WAYS = [by_send, by_batch, by_schedule, by_argument, by_result, by_hand, by_progress]


@pytest.mark.parametrize("way", WAYS)
def test_a_subclass_comes_back_as_its_base(open_queue, way):
    for at, value in enumerate([Safe("<b>"), Level.HIGH, {Safe("a"): [Safe("b"), (1, 2)]}, OrderedDict(a=1)]):
        back = way(open_queue(f"q{at}"), value)
        assert back == msgspec.json.decode(msgspec.json.encode(value, enc_hook=str.__str__))
        assert type(back) in (str, int, dict)


@pytest.mark.parametrize("way", WAYS)
def test_a_type_that_json_does_not_have_is_refused_where_it_is_given(open_queue, way):
    for at, value in enumerate([b"x", {"at": date(2027, 1, 1)}, [{1, 2}], {"a": Decimal(1)}, {1: 2}, Point(1, 2)]):
        queue = open_queue(f"q{at}")
        with pytest.raises(PayloadError, match="would come back as"):
            way(queue, value)
        assert queue.counts().living == (1 if way in (by_hand, by_progress) else 0)


def test_a_header_may_be_of_a_subclass(open_queue):
    queue, seen = open_queue(), []
    queue.callback(lambda message: seen.append(message.headers))
    queue.send_delay_msg(1, headers={Safe("a"): Safe("b")})
    queue.send_many([NewMessage(1, headers={"a": Safe("b")})])
    queue.run(burst=True)
    assert seen == [{"a": "b"}] * 2
    for headers in ({"a": 1}, {1: "a"}, {"a": b"x"}, {"a": None}, ["a"]):
        with pytest.raises(ConfigurationError, match="headers must map str to str"):
            queue.send_delay_msg(1, headers=headers)


def test_what_a_task_returns_comes_back_by_its_annotation(open_queue):
    queue, other = open_queue(), open_queue()
    total = queue.task(retention="1d", aliases=["sum"])(total_of)
    sent = total.send([Decimal("1.10"), Decimal("2.20")])
    named = queue.send_delay_msg({"prices": ["1.5"]}, name="sum", retention="1d")
    queue.run(burst=True)

    for result in (queue.result(sent.id, timeout=0), queue.get(sent.id).result):
        assert (result, type(result)) == (Decimal("3.30"), Decimal)
    assert queue.result(named.id, timeout=0) == Decimal("1.5")
    assert other.result(sent.id, timeout=0) == "3.30"  # which knows no such task
    other.task(name="total_of")(total_of)
    assert other.result(sent.id, timeout=0) == Decimal("3.30")


def total_of(prices: list[Decimal]) -> Decimal:
    """A task."""
    return sum(prices, Decimal())


def test_a_result_that_is_not_of_its_annotation_is_not_changed(open_queue):
    queue = open_queue()

    def tell(what: str) -> date:
        return {"text": "no date", "other": 5, "wrong": b"x"}[what]

    task = queue.task(retention="1d")(tell)
    sent = {what: task.send(what) for what in ("text", "other", "wrong")}
    queue.run(burst=True)
    assert queue.result(sent["text"].id, timeout=0) == "no date"
    assert queue.result(sent["other"].id, timeout=0) == 5
    with pytest.raises(NoResultError, match="a bytes would come back as str"):
        queue.result(sent["wrong"].id, timeout=0)
