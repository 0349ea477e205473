"""What JSON takes comes back equal, and of its type or the base of it; anything else is refused at the send."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from delayq import PayloadError
from delayq.queue.tasks.task_arguments import TaskArguments
from delayq.values.codec import JsonCodec

NAIVE = datetime(2027, 1, 1)  # noqa: DTZ001 - a payload may have one
PLAIN = (type(None), bool, int, float, str, list, dict)


class Safe(str):
    """A text such as those of Django and MarkupSafe."""

    __slots__ = ()

    def __str__(self) -> str:
        return self  # as theirs do


class Amount(int):
    """A number of its own."""


class Share(float):
    """Another."""


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


class Word(StrEnum):
    YES = "yes"


class Pair(NamedTuple):
    left: int
    right: Any


@dataclass
class Point:
    x: int
    more: Any = None


@dataclass(eq=False)
class Bare:
    """Has no equality of its own."""

    when: date


class Secret(pydantic.BaseModel):
    card: pydantic.SecretStr = pydantic.SecretStr("")
    note: str = pydantic.Field(default="", exclude=True)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.integers().map(Amount),
    st.floats().map(Share),
    st.text().map(Safe),
    st.sampled_from([Colour.RED, Level.HIGH, Word.YES, Point(1), Bare(date(2027, 1, 1)), b"x", bytearray(b"x"), 1j]),
    st.binary(),
    st.decimals(),
    st.uuids(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
keys = st.one_of(
    st.text(), st.text().map(Safe), st.integers(), st.dates(), st.sampled_from([Word.YES, Level.HIGH, None])
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.builds(Pair, st.integers(), inner),
        st.dictionaries(keys, inner),
        st.dictionaries(st.text(), inner).map(OrderedDict),
        st.dictionaries(st.text(), inner).map(lambda one: defaultdict(list, one)),
        st.builds(Point, st.integers(), inner),
        st.frozensets(st.one_of(st.integers(), st.text())),
    ),
    max_leaves=6,
)


def same(value: Any, back: Any) -> bool:
    """Tell whether a value has come back: as one of its type or a base of it, a tuple as a list."""
    if type(back) not in PLAIN or not isinstance(value, tuple if isinstance(value, tuple) else type(back)):
        return False
    if isinstance(back, list):
        return len(value) == len(back) and all(map(same, value, back))
    if isinstance(back, dict):
        return value.keys() == back.keys() and all(same(value[key], back[key]) for key in value)
    return bool(value == back)


@given(values)
@example({"a": None, "b": math.nan})
@example({"a": [b"x"]})
@example({1: 2})
@example([10**400, -(2**64)])
def test_a_payload_that_is_accepted_comes_back_equal(payload):
    codec = JsonCodec()
    try:
        encoded = codec.encode(payload)
    except PayloadError:
        return
    assert same(payload, codec.decode(encoded))
    assert codec.encode_many([payload, payload]) == [encoded, encoded]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.text("aü🙂"), st.floats(allow_nan=False, allow_infinity=False)
        ),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text("ab"), inner)),
    )
)
def test_all_that_json_has_is_accepted(payload):
    codec = JsonCodec()
    assert codec.decode(codec.encode(payload)) == payload


KINDS: list[Any] = [
    bytes,
    Decimal,
    UUID,
    datetime,
    date,
    time,
    timedelta,
    Colour,
    Level,
    Word,
    Point,
    Bare,
    Pair,
    set[int],
    frozenset[str],
    tuple[int, str],
    dict[int, str],
    dict[date, bytes],
    list[Any],
    dict[str, Any],
    float,
    Decimal | None,
    list[Point],
]
GIVEN: list[Any] = [
    b"x",
    Decimal("3.30"),
    UUID(int=5),
    datetime(2027, 1, 1, 9, 30, tzinfo=UTC),
    NAIVE,
    date(2027, 1, 1),
    time(9, 30),
    timedelta(days=1, microseconds=5),
    Colour.RED,
    Level.HIGH,
    Word.YES,
    Point(1, (2,)),
    Bare(date(2027, 1, 1)),
    Pair(1, "a"),
    {1, 2},
    frozenset({"a"}),
    (1, "a"),
    {1: "a"},
    {date(2027, 1, 1): b"x"},
    [Point(2), b"x"],
    {"a": {b"x"}},
    1,
    2.5,
    None,
    Secret(card=pydantic.SecretStr("4242")),
    Secret(note="kept"),
    [Point(3, (4,))],
    [b"x"],
    Decimal("NaN"),
    Decimal("sNaN"),
    math.nan,
    "text",
    Safe("a"),
    {"a": [1]},
    object(),
]


def shape(value: Any) -> Any:
    """Return a value for a comparison of all that it holds, in which a tuple is a list."""
    if isinstance(value, tuple | list):
        return [shape(one) for one in value]
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return (type(value), shape(vars(value))) if isinstance(value, Point | Bare) else value


@pytest.mark.parametrize("kind", [*KINDS, Secret], ids=str)
def test_a_typed_payload_that_is_accepted_comes_back_equal(kind):
    codec = JsonCodec(kind)
    for payload in GIVEN:
        try:
            encoded = codec.encode(payload)
        except PayloadError:
            continue
        assert kind is not Secret
        assert shape(codec.decode(encoded)) == shape(payload)


@pytest.mark.parametrize("kind", [*KINDS, Any], ids=str)
def test_an_argument_that_is_accepted_comes_back_equal(kind):
    def remind(what): ...

    remind.__annotations__["what"] = kind
    arguments, codec, accepted = TaskArguments("remind", remind, JsonCodec()), JsonCodec(), 0
    for one in GIVEN:
        try:
            payload = arguments.bind((one,), {})
        except PayloadError:
            continue
        accepted += 1
        stored = codec.decode(codec.encode(payload))
        if shape(stored["what"]) != shape(one):  # what JSON has becomes what the annotation says
            assert shape(arguments.read(stored)["what"]) == shape(one)
    assert accepted


def test_the_error_says_what_to_do():
    with pytest.raises(PayloadError, match=r"a datetime would come back as str: .*payload_type.*annotation.*codec"):
        JsonCodec().encode({"user": {"born": NAIVE}})
    with pytest.raises(PayloadError, match="a key that is a int would come back as another"):
        JsonCodec().encode([{1: 2}])

    def remind(when): ...

    with pytest.raises(
        PayloadError, match="argument when of task remind cannot be sent: a date would come back as str"
    ):
        TaskArguments("remind", remind, JsonCodec()).bind((date(2027, 1, 1),), {})


def test_equal_payloads_have_one_canonical_form():
    codec = JsonCodec()
    assert codec.encode_canonical({"b": [{"d": 1, "c": 2}], "a": 1}) == b'{"a":1,"b":[{"c":2,"d":1}]}'
    assert JsonCodec(float).encode_canonical(1) == JsonCodec(float).encode_canonical(1.0)
    assert codec.encode_canonical(1) != codec.encode_canonical(1.0)
    kind = set[str]
    assert len({JsonCodec(kind).encode_canonical({*"hello", other}) for other in "hello"}) == 1
    assert msgspec.json.decode(JsonCodec(Point).encode_canonical(Point(1))) == {"x": 1, "more": None}
