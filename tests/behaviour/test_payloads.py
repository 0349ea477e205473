"""Payloads: JSON, typed JSON, text, bytes, custom codecs and bytes that cannot be decoded."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pydantic
import pytest

from delayq import ConfigurationError, PayloadError
from tests.behaviour.places import everywhere

pytestmark = everywhere


class Reminder(msgspec.Struct, frozen=True):
    user: int
    text: str = ""


@dataclass(frozen=True)
class Point:
    x: float
    y: float


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
