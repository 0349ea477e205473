"""The lines of messages: byte for byte what each message has, however many are written and read together."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import pytest

from delayq import ConfigurationError
from delayq.bulk.connection import context_of, target_of
from delayq.bulk.files.message_lines import FIELDS, decode_line, lines_of, outgoing_of
from delayq.queue.sweeps.stored_messages import StoredMessage, StoredTable
from delayq.values.states import MESSAGE_STATES, State

PLAIN = StoredMessage("a", State.PENDING, 0, 3, 0, b"1", b"", b"", "")
PAYLOADS = [
    (b'{"user":42,"deep":[1,2.5,null]}', '{"user":42,"deep":[1,2.5,null]}', "json"),
    ('"grüße"'.encode(), '"grüße"', "json"),
    ('"\u202e\x7f"'.encode(), '"\\u202e\\u007f"', "json"),
    (b'{"user": 42}', '"{\\"user\\": 42}"', "text"),
    (b"1,2", '"1,2"', "text"),
    (b"1\n2", '"1\\n2"', "text"),
    ("é\x9b".encode(), '"é\\u009b"', "text"),
    (b"", '""', "text"),
    (b"\xff\x00", '"/wA="', "base64"),
]
"""Stored payloads, how they are written, and their encodings."""
DUES = [
    (0, "1970-01-01T00:00:00.000Z"),
    (59_999, "1970-01-01T00:00:59.999Z"),
    (60_000, "1970-01-01T00:01:00.000Z"),
    (1_709_251_199_007, "2024-02-29T23:59:59.007Z"),
    (7_258_118_399_999, "2199-12-31T23:59:59.999Z"),
]
DETAILS = [
    ({"headers": b'{"a":"1"}'}, {"headers": {"a": "1"}}),
    ({"attributes": b"name=send:mail priority=-3"}, {"name": "send:mail", "priority": -3}),
    ({"attributes": b"expires=60000 missed=drop"}, {"expires": "1970-01-01T00:01:00.000Z", "missed": "drop"}),
    ({"attributes": b"expires=+5400500"}, {"expires_after": 5400.5}),
    ({"attributes": b"snoozes=2 unique_for=3600000"}, {"unique_for": 3600, "snoozes": 2}),
    ({"attributes": b"unique_after=90000 timeout=1500"}, {"timeout": 1.5, "unique_after": 90}),
    ({"attributes": b"hours=08:00-21:00"}, {"hours": "08:00-21:00"}),
    ({"attributes": b"hours=SAT_08:00-21:00 tz=Asia/Tokyo"}, {"hours": "SAT 08:00-21:00", "tz": "Asia/Tokyo"}),
    ({"error": "Fehler: é\n"}, {"error": "Fehler: é\n"}),
    ({"reason": "no such user", "died": 60_000}, {"reason": "no such user", "died": "1970-01-01T00:01:00.000Z"}),
]
"""What only some messages have: as it is stored, and as it is written."""


@pytest.fixture
def context():
    return context_of(target_of("q", "redis://127.0.0.1:1", "delayq", None))  # nothing is sent


def drawn(draw, number):
    """A message with a few of all these, and the line that it has to have."""
    (payload, text, encoding), (due, at) = draw.choice(PAYLOADS), draw.choice(DUES)
    state, retries, attempts = draw.choice(MESSAGE_STATES), draw.randrange(9), draw.randrange(3)
    stored, written = {}, {}
    for more, fields in draw.sample(DETAILS, draw.choice([0, 0, 1, 2, 3])):
        if not stored.keys() & more.keys():
            stored |= more
            written |= fields
    message = PLAIN._replace(
        id=f"p:{number}", state=state, due=due, retries=retries, attempts=attempts, payload=payload
    )
    first = f'{{"id":"p:{number}","state":"{state}","due":"{at}","retries":{retries},"attempts":{attempts}'
    rest = {name: written[name] for name in FIELDS if name in written}
    end = json.dumps({"encoding": encoding} | rest, ensure_ascii=False, separators=(",", ":"))
    return message._replace(**stored), f'{first},"payload":{text},{end[1:]}\n'.encode()


@pytest.mark.parametrize("seed", range(5))
def test_random_messages_have_their_lines_and_come_back(context, seed):
    draw = random.Random(seed)
    messages, lines = zip(*(drawn(draw, number) for number in range(200)), strict=True)
    assert lines_of(StoredTable.of(messages)).splitlines(keepends=True) == list(lines)
    found = outgoing_of([decode_line(line) for line in lines], context, 1 << 20)
    again = [message.state in ("dead", "garbage") for message in messages]
    assert found.ids == [message.id for message in messages]
    assert found.dues == [0 if begins else f"@{message.due}" for message, begins in zip(messages, again, strict=True)]
    assert found.retries == [message.retries for message in messages]
    assert found.payloads == [message.payload for message in messages]
    assert found.headers == [message.headers for message in messages]
    kept = [
        (set(stored.split()), set(message.attributes.split()))
        for stored, message, begins in zip(found.attributes, messages, again, strict=True)
        if not begins
    ]
    assert [stored for stored, _ in kept] == [wanted for _, wanted in kept]


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_nested_payloads_come_back_also_where_the_stack_is_deeper(context, opening, closing):
    payloads = [opening * levels + b"1" + closing * levels for levels in (400, *range(800, 1010, 5))]
    lines = lines_of(StoredTable.of([PLAIN._replace(payload=one) for one in payloads])).splitlines()

    def read(frames):
        return (
            read(frames - 1)
            if frames
            else outgoing_of([decode_line(line) for line in lines], context, 1 << 20).payloads
        )

    assert read(50) == payloads
    assert {json.loads(lines[0])["encoding"], json.loads(lines[-1])["encoding"]} == {"json", "text"}


def test_no_messages_have_no_lines(context):
    assert lines_of(StoredTable.of([])) == b""
    assert outgoing_of([], context, 1 << 20).ids == []


def test_minutes_between_messages_are_told_apart():
    """Due times are written a minute at a time: random ones, from all of the years that there are."""
    draw = random.Random(0)
    dues = sorted(draw.randrange(7_258_118_400_000) for _ in range(300))
    lines = lines_of(StoredTable.of([PLAIN._replace(due=due) for due in dues])).splitlines()
    times = [datetime.fromisoformat(json.loads(line)["due"]) for line in lines]
    assert [round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) for at in times] == dues


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_invalid_line_refuses_all_that_are_read_with_it(context, place):
    lines = [decode_line(b'{"id":"a","payload":1}') for _ in range(3)]
    lines[place].retries = -1
    with pytest.raises(ConfigurationError, match="retries must be"):
        outgoing_of(lines, context, 1 << 20)
