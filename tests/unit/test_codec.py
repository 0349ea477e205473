"""Payloads to bytes and back."""

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
from delayq.codec import BytesCodec, JsonCodec, TextCodec, find_codec


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
def test_plain_json_comes_back_as_it_was(value):
    assert plain.decode(plain.encode(value)) == value


@given(values)
def test_what_is_stored_is_json_that_others_read(value):
    assert json.loads(plain.encode(value)) == value


@pytest.mark.parametrize(
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
def test_a_typed_payload_comes_back_as_it_was(payload_type, value):
    codec = JsonCodec(payload_type)
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value) or payload_type is float


@pytest.mark.parametrize(
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
def test_a_payload_of_another_type_is_refused_before_it_is_sent(payload_type, value):
    with pytest.raises(PayloadError):
        JsonCodec(payload_type).encode(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [None, {"a": x}], lambda x: {"a": (x,)}], ids=["bare", "in", "tuple"]
)
def test_what_json_has_no_number_for_is_refused_not_turned_into_null(value, wrap):
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
        [Reminder(1), None],
        {"a": datetime(2026, 1, 1, tzinfo=UTC), "b": None},
        {1: None},
    ],
    ids=str,
)
def test_none_is_null(value):
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


@pytest.mark.parametrize(
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
def test_what_is_no_json_is_refused(make):
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
def test_bytes_that_are_no_json_are_undecodable(data, payload_type):
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
def test_json_of_another_type_is_undecodable(payload_type, data):
    with pytest.raises(UndecodableError):
        JsonCodec(payload_type).decode(data)


@given(st.binary(max_size=30))
def test_any_bytes_decode_or_are_undecodable(data):
    for codec in (plain, JsonCodec(Reminder), TextCodec()):
        with suppress(UndecodableError):
            codec.decode(data)


@pytest.mark.parametrize("depth", [1, 100, 500])
def test_sensible_depths_pass_both_ways(depth):
    assert plain.decode(plain.encode(nested(depth))) == nested(depth)


def test_a_field_a_later_version_added_is_passed_over():
    assert JsonCodec(Reminder).decode(b'{"user":1,"added":[1,2]}') == Reminder(1)


@given(st.text())
def test_text_comes_back_as_it_was(text):
    codec = TextCodec()
    try:
        stored = codec.encode(text)
    except PayloadError:
        assert any("\ud800" <= character <= "\udfff" for character in text)
    else:
        assert codec.decode(stored) == text


@pytest.mark.parametrize("value", [b"a", 1, None, ["a"], bytearray(b"a")], ids=repr)
def test_the_text_codec_takes_text_only(value):
    with pytest.raises(PayloadError, match="the text codec takes str"):
        TextCodec().encode(value)


def test_the_text_codec_refuses_lone_surrogates_and_bytes_that_are_no_utf_8():
    with pytest.raises(PayloadError, match="surrogates not allowed"):
        TextCodec().encode("a\ud800")
    with pytest.raises(UndecodableError):
        TextCodec().decode(b"\xff")


@given(st.binary())
def test_any_bytes_come_back_as_they_were(data):
    codec = BytesCodec()
    assert codec.decode(codec.encode(data)) == data
    assert type(codec.encode(bytearray(data))) is bytes
    assert codec.encode(memoryview(data)) == data


@pytest.mark.parametrize("value", ["a", 5, None, [1, 2], True], ids=repr)
def test_the_bytes_codec_takes_bytes_only(value):
    with pytest.raises(PayloadError, match="the bytes codec takes bytes"):
        BytesCodec().encode(value)


class Pickled:
    """A user's own codec, whatever one thinks of it."""

    def encode(self, payload):
        return pickle.dumps(payload)

    def decode(self, data):
        return pickle.loads(data)


def test_an_option_names_the_codec_or_is_one():
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
def test_a_payload_type_goes_with_json_only(codec):
    with pytest.raises(ConfigurationError, match="payload_type goes with the json codec"):
        find_codec(codec, Reminder)


@pytest.mark.parametrize("payload_type", [5, "Reminder", Reminder(1), [int], {}, 1.5], ids=str)
def test_a_payload_type_that_is_none_is_refused(payload_type):
    with pytest.raises(ConfigurationError, match="payload_type"):
        JsonCodec(payload_type)
