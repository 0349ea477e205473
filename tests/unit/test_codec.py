"""Codecs convert payloads to bytes and back."""

import enum
import json
import math
import pickle
import uuid
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError, DelayqError, PayloadError, UndecodableError
from delayq.values.codec import BytesCodec, JsonCodec, TextCodec, find_codec


class Reminder(msgspec.Struct):
    user: int
    text: str = ""


class Alarm(msgspec.Struct, tag=True):
    at: datetime


class Letter(msgspec.Struct, tag=True):
    pages: list[str]


@dataclass
class Point:
    x: int
    y: int


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Colour(enum.Enum):
    RED = "red"


plain = JsonCodec()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_plain_json_survives_the_round_trip(value):
    assert plain.decode(plain.encode(value)) == value


@given(values)
def test_stored_payload_is_standard_json(value):
    assert json.loads(plain.encode(value)) == value


@pytest.mark.table(
    ("payload_type", "value"),
    [
        (Reminder, Reminder(42, "milk")),
        (Reminder | None, None),
        (Reminder | None, Reminder(1)),
        (Alarm | Letter, Letter(["a", "b"])),
        (Alarm | Letter, Alarm(datetime(2026, 1, 1, tzinfo=UTC))),
        (list[Reminder], [Reminder(1), Reminder(2)]),
        (dict[str, Reminder], {"a": Reminder(1)}),
        (Point, Point(1, 2)),
        (list[Point], [Point(1, 2)]),
        (Point | None, Point(1, 2)),
        (Options, {"name": "a"}),
        (Options, {"name": "a", "size": 1}),
        (dict[int, str], {1: "a"}),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (int, 10**30),
        (int, -1),
        (float, 1.5),
        (float, 1),  # what mypy allows where a float is asked for
        (int | str, "a"),
        (bool, True),
        (str, "ü"),
        (bytes, b"\x00\xff"),
        (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
        (uuid.UUID, uuid.UUID(int=5)),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (list[Colour], [Colour.RED]),
        (Literal["a", "b"], "b"),
        (Any, {"a": [1]}),
        (None, {"a": [1]}),
        (type(None), None),
    ],
    ids=str,
)
def test_typed_payload_survives_the_round_trip(payload_type, value):
    codec = JsonCodec(payload_type)
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value) or payload_type is float


@pytest.mark.table(
    ("payload_type", "value"),
    [
        (Reminder, {"user": 1}),
        (Reminder, Point(1, 2)),
        (Reminder, None),
        (Reminder, Reminder),
        (Point, (1, 2)),
        (Options, {"size": 1}),
        (Options, {"name": 1}),
        (Options, []),
        (int, "1"),
        (int, 1.5),
        (int, True),  # JSON's true, which would not come back
        (float, True),
        (float, "1"),
        (str, b"a"),
        (int | str, 1.5),
        (Alarm | Letter, Reminder(1)),
        (list[int], [1, "2"]),
        (list[int], 1),
        (tuple[int, str], (1,)),
        (dict[str, int], {"a": "b"}),
        (Literal["a"], "b"),
        (Colour, "red"),
        (datetime, "2026-01-01T00:00:00Z"),
    ],
    ids=str,
)
def test_payload_of_wrong_type_is_refused_before_it_is_sent(payload_type, value):
    with pytest.raises(PayloadError):
        JsonCodec(payload_type).encode(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [None, {"a": x}], lambda x: {"a": (x,)}], ids=["bare", "in", "tuple"]
)
def test_nan_and_infinity_are_refused_not_turned_into_null(value, wrap):
    with pytest.raises(PayloadError):
        plain.encode(wrap(value))
    with pytest.raises(PayloadError):
        JsonCodec(float).encode(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [None],
        {"a": None},
        "null",
        {"null": 1},
    ],
    ids=str,
)
def test_none_is_stored_as_null(value):
    assert b"null" in plain.encode(value)


def nested(depth):
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def itself():
    value: list[Any] = []
    value.append(value)
    return value


class Cross:
    def __iter__(self):
        raise RuntimeError


@pytest.mark.table(
    "make",
    [
        itself,
        lambda: nested(100_000),
        lambda: {"a": nested(100_000)},
        lambda: "\ud800",
        lambda: {"\ud800": 1},
        object,
        Cross,
        lambda: {(1, 2): 3},
        lambda: {None: 3},
        lambda: 1j,
        lambda: print,
        lambda: (x for x in ()),
        lambda: 10**5000,
        lambda: OrderedDict({object(): 1}),
    ],
)
def test_value_that_is_not_json_is_refused(make):
    with pytest.raises(PayloadError) as caught:
        plain.encode(make())
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, DelayqError)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b'{"a"',
        b"nul",
        b"NaN",
        b"Infinity",
        b"1e999",
        b"1" * 5000,
        b"'a'",
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf1",
        b"1 2",
        b"\x00",
        b"\x80\x04K\x01.",
        b"[" * 1_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":{"a":' * 50_000,
    ],
    ids=lambda data: repr(data[:12]),
)
@pytest.mark.parametrize("payload_type", [None, Any, Reminder, list[Any], Options], ids=str)
def test_invalid_json_is_undecodable(data, payload_type):
    with pytest.raises(UndecodableError, match="undecodable"):
        JsonCodec(payload_type).decode(data)


@pytest.mark.parametrize(
    ("payload_type", "data"),
    [
        (Reminder, b"{}"),
        (Reminder, b'{"user":"1"}'),
        (Reminder, b"null"),
        (int, b"1.5"),
        (int, b"true"),
        (Options, b"[]"),
    ],
    ids=str,
)
def test_json_of_wrong_type_is_undecodable(payload_type, data):
    with pytest.raises(UndecodableError):
        JsonCodec(payload_type).decode(data)


@given(st.binary(max_size=30))
def test_any_bytes_decode_or_are_undecodable(data):
    for codec in (plain, JsonCodec(Reminder), TextCodec()):
        with suppress(UndecodableError):
            codec.decode(data)


@pytest.mark.parametrize("depth", [1, 100, 500])
def test_nested_payloads_of_normal_depth_survive_the_round_trip(depth):
    assert plain.decode(plain.encode(nested(depth))) == nested(depth)


def test_unknown_field_is_ignored():
    assert JsonCodec(Reminder).decode(b'{"user":1,"added":[1,2]}') == Reminder(1)


@given(st.text())
def test_text_survives_the_round_trip(text):
    codec = TextCodec()
    try:
        stored = codec.encode(text)
    except PayloadError:
        assert any("\ud800" <= character <= "\udfff" for character in text)
    else:
        assert codec.decode(stored) == text


@pytest.mark.parametrize("value", [b"a", 1, None, ["a"], bytearray(b"a")], ids=repr)
def test_text_codec_accepts_only_text(value):
    with pytest.raises(PayloadError, match="the text codec takes str"):
        TextCodec().encode(value)


def test_text_codec_refuses_lone_surrogates_and_invalid_utf_8():
    with pytest.raises(PayloadError, match="surrogates not allowed"):
        TextCodec().encode("a\ud800")
    with pytest.raises(UndecodableError):
        TextCodec().decode(b"\xff")


@given(st.binary())
def test_any_bytes_survive_the_round_trip(data):
    codec = BytesCodec()
    assert codec.decode(codec.encode(data)) == data
    assert type(codec.encode(bytearray(data))) is bytes
    assert codec.encode(memoryview(data)) == data


@pytest.mark.parametrize("value", ["a", 5, None, [1, 2], True], ids=repr)
def test_bytes_codec_accepts_only_bytes(value):
    with pytest.raises(PayloadError, match="the bytes codec takes bytes"):
        BytesCodec().encode(value)


class Pickled:
    """A custom codec."""

    def encode(self, payload):
        return pickle.dumps(payload)

    def decode(self, data):
        return pickle.loads(data)


def test_codec_option_is_a_name_or_a_codec():
    own = Pickled()
    assert isinstance(find_codec("json", None), JsonCodec)
    assert isinstance(find_codec("text", None), TextCodec)
    assert isinstance(find_codec("bytes", None), BytesCodec)
    assert find_codec(own, None) is own
    assert find_codec(own, Reminder) is own


@pytest.mark.parametrize("codec", ["pickle", "JSON", "", None, 5, object(), b"json", json], ids=type)
def test_an_unknown_codec_is_refused(codec):
    with pytest.raises(ConfigurationError, match="codec must be"):
        find_codec(codec, None)


@pytest.mark.parametrize("codec", ["text", "bytes", "nonsense"])
def test_payload_type_works_only_with_json(codec):
    with pytest.raises(ConfigurationError, match="payload_type goes with the json codec"):
        find_codec(codec, Reminder)


@pytest.mark.parametrize("payload_type", [5, "Reminder", Reminder(1), [int], {}, 1.5], ids=str)
def test_invalid_payload_type_is_refused(payload_type):
    with pytest.raises(ConfigurationError, match="payload_type"):
        JsonCodec(payload_type)
