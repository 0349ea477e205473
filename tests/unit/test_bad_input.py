"""An invalid argument raises a typed error at once, before anything is sent or stored."""

import asyncio
import logging
import math
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq import (
    AsyncDelayQueue,
    ConfigurationError,
    DelayqError,
    DelayQueue,
    NewMessage,
    NoCallbackError,
    PayloadError,
    PayloadTooLargeError,
    Retry,
    State,
)

NOWHERE = "redis://127.0.0.1:1/0"
"""No server listens there: a call that did send something would retry for an hour."""


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


class Reminder(msgspec.Struct):
    user: int


NO_NUMBER = [math.inf, math.nan, -1, True, False, 10**18, 10**5000, "many", "3", 1.0, b"1", [], Broken()]
NO_DURATION = [
    *[value for value in NO_NUMBER if type(value) is not float or not math.isfinite(value)],
    -math.inf,
    -0.001,
    timedelta(microseconds=-1),
    timedelta.max,
    "",
    "1y",
    "1mm",
    "-1s",
    "٣s",
    1j,
]
NO_TIME = [
    datetime.fromisoformat("2026-01-01"),
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime(2200, 1, 1, tzinfo=UTC),
    date(2026, 1, 1),
    1_767_225_600,
    "2026-01-01T00:00:00Z",
    True,
    timedelta(1),
    Broken(),
]
NO_ID = [
    "",
    "a b",
    "a" * 129,
    "a" * 10_000,
    "{a}",
    "a*",
    "a\r\nb",
    "a\x00",
    "\u202ea",
    "idѕ",
    "\ud800",
    "é",
    b"a",
    5,
    True,
]
NO_ID += [10**5000, ["a"], Broken()]
NO_HEADERS = [
    "a",
    "",
    b"",
    5,
    0,
    False,
    [],
    [("a", "b")],
    {"a": 1},
    {1: "a"},
    {"a": None},
    {"a": b"b"},
    {"\ud800": "a"},
    {"a": "\ud800"},
    {"a": "b" * 17_000},
    {str(n): "x" for n in range(5000)},
    Broken(),
]
NO_LIST = ["text", b"bytes", bytearray(b"x"), {"user": 42}, 5, None, True, Broken(), Reminder(1)]


def nested():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


def itself():
    value = []
    value.append(value)
    return value


NO_PAYLOAD = [object(), Broken(), math.nan, [math.inf], {"a": 1j}, "\ud800", {(1, 2): 3}, nested(), itself(), 10**5000]


def cases(**groups):
    """Name each case by its group, and by the index and type of its invalid value."""
    return [
        pytest.param(call, value, id=f"{name}-{at}-{type(value).__name__}")
        for name, (call, values) in groups.items()
        for at, value in enumerate(values)
    ]


ARGUMENTS = cases(
    send_delay=(lambda q, wrong: q.send_delay_msg(1, wrong), [*NO_DURATION, None]),
    send_delay_by_name=(lambda q, wrong: q.send_delay_msg(1, delay=wrong), NO_DURATION[:3]),
    send_retries=(lambda q, wrong: q.send_delay_msg(1, 0, wrong), NO_NUMBER),
    send_id=(lambda q, wrong: q.send_delay_msg(1, id=wrong), NO_ID),
    send_headers=(lambda q, wrong: q.send_delay_msg(1, headers=wrong), NO_HEADERS),
    send_payload=(lambda q, wrong: q.send_delay_msg(wrong), NO_PAYLOAD),
    schedule_at=(lambda q, wrong: q.send_schedule_msg(1, wrong), [*NO_TIME, None]),
    schedule_at_by_name=(lambda q, wrong: q.send_schedule_msg(1, at=wrong), NO_TIME[:3]),
    schedule_retries=(lambda q, wrong: q.send_schedule_msg(1, datetime.now(UTC), wrong), NO_NUMBER),
    schedule_id=(lambda q, wrong: q.send_schedule_msg(1, datetime.now(UTC), id=wrong), NO_ID),
    schedule_headers=(lambda q, wrong: q.send_schedule_msg(1, datetime.now(UTC), headers=wrong), NO_HEADERS),
    schedule_payload=(lambda q, wrong: q.send_schedule_msg(wrong, datetime.now(UTC)), NO_PAYLOAD),
    many=(lambda q, wrong: q.send_many(wrong), NO_LIST),
    many_delay=(lambda q, wrong: q.send_many([1], wrong), [*NO_DURATION, None]),
    many_retries=(lambda q, wrong: q.send_many([1], 0, wrong), NO_NUMBER),
    many_payload=(lambda q, wrong: q.send_many([1, 2, wrong, 3]), NO_PAYLOAD),
    new_delay=(lambda q, wrong: q.send_many([1, NewMessage(2, delay=wrong)]), NO_DURATION),
    new_at=(lambda q, wrong: q.send_many([1, NewMessage(2, at=wrong)]), NO_TIME),
    new_retries=(lambda q, wrong: q.send_many([1, NewMessage(2, retries=wrong)]), NO_NUMBER),
    new_id=(lambda q, wrong: q.send_many([1, NewMessage(2, id=wrong)]), NO_ID),
    replace_without_id=(lambda q, wrong: q.send_delay_msg(wrong, replace=True), [1]),
    replace_at_a_time_without_id=(lambda q, wrong: q.send_schedule_msg(wrong, datetime.now(UTC), replace=True), [1]),
    replace_many_without_id=(
        lambda q, wrong: q.send_many(wrong, replace=True),
        [[1], [NewMessage(1)], [NewMessage(1, id="a"), 2]],
    ),
    new_headers=(lambda q, wrong: q.send_many([1, NewMessage(2, headers=wrong)]), NO_HEADERS),
    new_payload=(lambda q, wrong: q.send_many([1, NewMessage(wrong)]), NO_PAYLOAD),
    new_both=(lambda q, _: q.send_many([NewMessage(1, delay=1, at=datetime.now(UTC))]), [None]),
    cancel=(lambda q, wrong: q.cancel(wrong), [*NO_ID, None]),
    kill=(lambda q, wrong: q.kill(wrong), [*NO_ID, None]),
    get=(lambda q, wrong: q.get(wrong), [*NO_ID, None]),
    edit_id=(lambda q, wrong: q.edit(wrong, payload=1), [*NO_ID, None]),
    edit_nothing=(lambda q, _: q.edit("a"), [None]),
    edit_headers=(lambda q, wrong: q.edit("a", headers=wrong), [5, "a", {"a": 1}, {1: "a"}]),
    edit_name=(lambda q, wrong: q.edit("a", name=wrong), ["", "a b", 5]),
    edit_priority=(lambda q, wrong: q.edit("a", priority=wrong), [101, -101, "1", 1.5, True]),
    edit_expires=(lambda q, wrong: q.edit("a", expires=wrong), ["x", -1, 0, True]),
    edit_option=(lambda q, _: q.edit("a", prioritiy=1), [None]),
    edit_due=(lambda q, _: q.edit("a", delay=5), [None]),
    edit_if_unchanged=(lambda q, wrong: q.edit("a", payload=1, if_unchanged=wrong), ["a", 5]),
    forget_id=(lambda q, wrong: q.forget(wrong), [*NO_ID, None]),
    forget_nothing=(lambda q, _: q.forget(), [None]),
    forget_both=(lambda q, _: q.forget("a", name="mail"), [None]),
    forget_prefix=(lambda q, wrong: q.forget(id_prefix=wrong), ["", "a b", 5]),
    forget_name=(lambda q, wrong: q.forget(name=wrong), ["", "a b", 5]),
    forget_dry_run=(lambda q, wrong: q.forget("a", dry_run=wrong), [1, "yes", None]),
    reschedule_id=(lambda q, wrong: q.reschedule(wrong, 5), [*NO_ID, None]),
    reschedule_delay=(lambda q, wrong: q.reschedule("a", wrong), [*NO_DURATION, None]),
    reschedule_at=(lambda q, wrong: q.reschedule("a", at=wrong), [*NO_TIME, None]),
    reschedule_both=(lambda q, _: q.reschedule("a", 5, at=datetime.now(UTC)), [None]),
    list_state=(lambda q, wrong: q.list(wrong), ["nowhere", "", "PENDING", "leased", 5, None, [], b"ready", Broken()]),
    list_limit=(lambda q, wrong: q.list("pending", limit=wrong), [*NO_NUMBER, 0, 1001, None]),
    list_cursor_by_time=(
        lambda q, wrong: q.list("pending", cursor=wrong),
        [
            "a",
            "5",
            "@5",
            "a@",
            "a@b",
            "a@-1",
            "a@٣",
            "a@" + "1" * 400,
            "\ud800@5",
            "a b@5",
            "x" * 5000 + "@5",
            0,
            5,
            b"a@5",
        ],
    ),
    list_cursor_by_place=(
        lambda q, wrong: q.list("ready", cursor=wrong),
        ["a", "-1", "1.5", "٣", "1" * 400, " 5", "5@", "\ud800", 0, 5, b"5", True, Broken()],
    ),
    dead_limit=(lambda q, wrong: q.dead.list(limit=wrong), [*NO_NUMBER, 0, 1001, None]),
    dead_cursor=(lambda q, wrong: q.dead.list(cursor=wrong), ["a", "5", "a:1", "a:1@x", 5]),
    redrive_id=(lambda q, wrong: q.dead.redrive(wrong), [*NO_ID, "a b:5", "é:5", "a" * 129 + ":5", "a:٣ "]),
    redrive_retries=(lambda q, wrong: q.dead.redrive("a", retries=wrong), NO_NUMBER),
    redrive_reason=(lambda q, wrong: q.dead.redrive(reason=wrong), ["", 5, True, b"x", [], Broken()]),
    redrive_error=(lambda q, wrong: q.dead.redrive(error=wrong), ["", 5, True, b"x", [], Broken()]),
    redrive_all=(lambda q, wrong: q.dead.redrive(all=wrong), ["yes", 1, None, [1], Broken()]),
    redrive_nothing=(lambda q, _: q.dead.redrive(), [None]),
    redrive_two=(lambda q, _: q.dead.redrive("a", all=True), [None]),
    purge_id=(lambda q, wrong: q.dead.purge(wrong), NO_ID),
    purge_reason=(lambda q, wrong: q.dead.purge(reason=wrong), ["", 5, b"x"]),
    purge_all=(lambda q, wrong: q.dead.purge(all=wrong), ["yes", 1, None]),
    purge_nothing=(lambda q, _: q.dead.purge(), [None]),
    purge_two=(lambda q, _: q.dead.purge(reason="a", all=True), [None]),
    lease_duration=(lambda q, wrong: q.lease(wrong), [*NO_DURATION, 0, "99ms"]),
    lease_n=(lambda q, wrong: q.lease(n=wrong), [*NO_NUMBER, 0, 1001]),
    lease_block=(lambda q, wrong: q.lease(block=wrong), [*NO_DURATION, None]),
    stop_grace=(lambda q, wrong: q.stop_consume(wrong), NO_DURATION),
    callback=(lambda q, wrong: q.callback(wrong), [5, None, "print", [], Broken()]),
    batch_callback=(lambda q, wrong: q.batch_callback(wrong), [5, None, "print", [], Broken()]),
    most=(lambda q, wrong: q.batch_callback(print, most=wrong), [*NO_NUMBER, 0, -1, 1001]),
    most_of_a_decorator=(lambda q, wrong: q.batch_callback(most=wrong), [*NO_NUMBER, 0, 1001]),
)


async def _finish(reply):
    return await reply


def call(queue, act, wrong):
    """Run a call on a blocking or an asyncio queue."""
    reply = act(queue, wrong)
    return asyncio.run(_finish(reply)) if isinstance(queue, AsyncDelayQueue) and hasattr(reply, "__await__") else reply


def contents(client):
    return {key: client.dump(key) for key in client.scan_iter()}


@contextmanager
def nothing_stored(client):
    before = contents(client)
    yield
    assert contents(client) == before


FACES = pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue], ids=["blocking", "asyncio"])


@pytest.mark.long
@FACES
@pytest.mark.table(("act", "wrong"), ARGUMENTS)
def test_invalid_argument_is_refused_before_anything_is_sent(face, act, wrong):
    queue = face("reminders", url=NOWHERE, deadline="1h")
    with pytest.raises((ConfigurationError, PayloadError)) as caught:
        call(queue, act, wrong)
    assert isinstance(caught.value, DelayqError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.fixture
def queue(redis_url):
    """A queue with one message in each of several states."""
    with DelayQueue("reminders", url=redis_url, max_payload=100) as queue:
        queue.send_delay_msg("later", "1h", id="later")
        queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
        with queue.lease(n=2) as (first, second):
            first.reject("no such user")
            second.nack(delay="1h")
        yield queue


def test_invalid_argument_stores_nothing(queue, redis_client):
    with nothing_stored(redis_client):
        for case in ARGUMENTS:
            act, wrong = case.values
            with pytest.raises((ConfigurationError, PayloadError)):
                call(queue, act, wrong)


def test_one_invalid_message_among_many_stores_none(queue, redis_client):
    good = [NewMessage(n, id=f"good{n}") for n in range(2000)]
    for wrong in (
        object(),
        "x" * 101,
        NewMessage(1, delay=-1),
        NewMessage(1, id="a b"),
        NewMessage(1, headers={"a": 1}),
    ):
        with nothing_stored(redis_client), pytest.raises((ConfigurationError, PayloadError)):
            queue.send_many([*good, wrong])


def test_an_iterable_that_fails_stores_nothing(queue, redis_client):
    def messages():
        yield from range(2000)
        raise LookupError("the database went away")

    with nothing_stored(redis_client), pytest.raises(LookupError):
        queue.send_many(messages())


@FACES
@pytest.mark.parametrize("codec", ["json", "text", "bytes"])
def test_a_payload_over_max_payload_is_refused_before_a_byte_is_sent(face, codec):
    queue = face("reminders", url=NOWHERE, deadline="1h", codec=codec, max_payload=1000)
    payload = b"x" * 1001 if codec == "bytes" else "x" * 1001
    for act in (
        lambda q, payload: q.send_delay_msg(payload),
        lambda q, payload: q.send_schedule_msg(payload, datetime.now(UTC)),
        lambda q, payload: q.send_many([payload[:5], payload]),
    ):
        with pytest.raises(PayloadTooLargeError, match=r"the payload is 100[13] bytes encoded; max_payload is 1000"):
            call(queue, act, payload)


def test_payload_can_be_as_large_as_max_payload(queue):
    assert queue.send_delay_msg("x" * 98).new  # and two quotes
    with pytest.raises(PayloadTooLargeError):
        queue.send_delay_msg("x" * 99)
    with pytest.raises(PayloadTooLargeError):
        queue.send_delay_msg("ü" * 50)  # it is bytes that count


def test_the_default_limit_is_one_mebibyte(redis_url):
    with DelayQueue("large", url=redis_url, codec="bytes") as queue:
        assert queue.send_delay_msg(b"x" * (1 << 20)).new
        with pytest.raises(PayloadTooLargeError):
            queue.send_delay_msg(b"x" * ((1 << 20) + 1))


@FACES
def test_payload_of_wrong_type_is_refused_before_it_is_sent(face):
    queue = face("reminders", payload_type=Reminder, url=NOWHERE, deadline="1h")
    for wrong in ({"user": 1}, None, 5, Reminder, [Reminder(1)]):
        for act in (lambda q, wrong: q.send_delay_msg(wrong), lambda q, wrong: q.send_many([Reminder(1), wrong])):
            with pytest.raises(PayloadError):
                call(queue, act, wrong)


class Sloppy:
    """A codec that does not return bytes."""

    def encode(self, payload):
        return payload

    def decode(self, data):
        return data


@FACES
@pytest.mark.parametrize("encoded", ["text", None, 5, bytearray(b"x"), memoryview(b"x")], ids=type)
def test_codec_that_does_not_return_bytes_raises_payload_error(face, encoded):
    queue = face("reminders", url=NOWHERE, deadline="1h", codec=Sloppy())
    with pytest.raises(PayloadError, match="the codec must encode to bytes"):
        call(queue, lambda q, wrong: q.send_delay_msg(wrong), encoded)


@FACES
@pytest.mark.table("name", [*NO_ID, None, "a:b", "a/b", "a#b"], ids=lambda name: type(name).__name__)
def test_invalid_name_or_prefix_is_refused(face, name):
    with pytest.raises(ConfigurationError):
        face(name, url=NOWHERE)
    with pytest.raises(ConfigurationError):
        face("reminders", url=NOWHERE, prefix=name)


@FACES
@pytest.mark.table(
    "options",
    [
        {"codec": "pickle"},
        {"codec": None},
        {"payload_type": 5},
        {"payload_type": Reminder, "codec": "text"},
        {"callback": 5},
        {"concurrency": 0},
        {"lease": 0},
        {"strict": "yes"},
        {"tick": True},
        {"interval": 1},
        {"redis": "localhost"},
    ],
    ids=str,
)
def test_invalid_option_is_refused(face, options):
    with pytest.raises(ConfigurationError):
        face("reminders", url=NOWHERE, **options)


async def later(message):
    pass


def test_blocking_queue_refuses_a_coroutine_function_as_callback():
    queue = DelayQueue("reminders", url=NOWHERE)
    for function in (later, partial(later)):
        with pytest.raises(ConfigurationError, match="use it with an AsyncDelayQueue"):
            queue.callback(function)
        with pytest.raises(ConfigurationError, match="batch_callback is a coroutine function"):
            queue.batch_callback(function)
        with pytest.raises(ConfigurationError, match="use it with an AsyncDelayQueue"):
            queue.batch_callback(most=5)(function)
    with pytest.raises(ConfigurationError, match="coroutine"):
        DelayQueue("reminders", url=NOWHERE, callback=later)
    AsyncDelayQueue("reminders", url=NOWHERE).callback(later)
    AsyncDelayQueue("reminders", url=NOWHERE).batch_callback(later)


@FACES
@pytest.mark.parametrize("act", [lambda q, _: q.start_consume(), lambda q, _: q.run(), lambda q, _: q.run(burst=True)])
def test_consuming_without_a_callback_is_refused_before_anything_is_sent(face, act):
    queue = face("reminders", url=NOWHERE, deadline="1h")
    with pytest.raises(NoCallbackError, match="queue reminders has no callback"):
        call(queue, act, None)


# A delivered message

MESSAGE = cases(
    nack_delay=(lambda m, wrong: m.nack(delay=wrong), NO_DURATION),
    nack_error=(lambda m, wrong: m.nack(error=wrong), [None, 5, b"x", ValueError("x"), Broken()]),
    extend=(lambda m, wrong: m.extend(wrong), [*NO_DURATION, 0, "99ms"]),
    reject=(lambda m, wrong: m.reject(wrong), [None, 5, b"x", ValueError("x"), Broken()]),
)


def test_invalid_argument_does_not_settle_a_message(queue, redis_client):
    with queue.lease() as message:
        for case in MESSAGE:
            act, wrong = case.values
            with nothing_stored(redis_client), pytest.raises(ConfigurationError):
                act(message, wrong)
            assert not message.delivery.settled
        assert message.ack()
        assert not message.lease_lost


def test_invalid_argument_does_not_settle_an_asyncio_message(redis_url):
    async def scene():
        async with AsyncDelayQueue("reminders", url=redis_url) as queue:
            await queue.send_delay_msg(1)
            async with queue.lease() as message:
                for case in MESSAGE:
                    act, wrong = case.values
                    with pytest.raises(ConfigurationError):
                        await act(message, wrong)
                    assert not message.delivery.settled
                assert await message.ack()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "text", ["", "\x00", "\ud800", "\u202e", "x" * 10_000, "a\r\nb", "é" * 3000], ids=lambda t: ascii(t[:5])
)
def test_any_text_can_be_a_reason_or_an_error(redis_url, text):
    kept = text[:2048].replace("\ud800", "?")
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_many([NewMessage(1, id="a"), NewMessage(2, id="b")])
        with queue.lease(n=2) as (rejected, failed):
            assert rejected.reject(text)
            assert failed.nack(error=text, delay="1h")
        assert queue.get("a").reason == kept
        assert queue.get("b").error == kept


@pytest.mark.parametrize(
    "raised",
    [ValueError("\ud800"), Retry("\ud800"), Retry(Broken()), Retry(b"x"), ValueError(Broken())],
    ids=lambda raised: type(raised).__name__,
)
def test_worker_continues_after_any_exception_of_a_callback(redis_url, raised, caplog):
    caplog.set_level(logging.CRITICAL, "delayq")  # pytest-xdist cannot pass a lone surrogate on
    done = []

    def process(message):
        done.append(message.payload)
        if message.payload == "bad":
            raise raised

    with DelayQueue("reminders", url=redis_url, callback=process, default_retries=0, tick="50ms") as queue:
        queue.send_many(["bad", "good"])
        queue.run(burst=True)
        assert sorted(done) == ["bad", "good"]
        assert queue.counts().dead == 1
        assert queue.counts().living == 0


def test_invalid_argument_does_not_stop_a_consumer(redis_url):
    with DelayQueue("reminders", url=redis_url, callback=print) as queue:
        consuming = queue.start_consume()
        for wrong in NO_DURATION:
            for act in (consuming.stop, consuming.wait, queue.stop_consume):
                with pytest.raises(ConfigurationError):
                    act(wrong)
        assert consuming.running
        assert not consuming.wait("1ms")


def test_invalid_argument_does_not_stop_an_asyncio_consumer(redis_url):
    async def scene():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=print) as queue:
            consuming = await queue.start_consume()
            for wrong in NO_DURATION:
                with pytest.raises(ConfigurationError):
                    consuming.stop(wrong)
                with pytest.raises(ConfigurationError):
                    await consuming.wait(wrong)
                with pytest.raises(ConfigurationError):
                    await queue.stop_consume(wrong)
            assert consuming.running

    asyncio.run(scene())


# Anything at all

anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=30)
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.none(), max_size=3)
)


def mostly(right):
    return st.integers(0, 9).flatmap(lambda one: anything if one == 0 else right)


sends = st.fixed_dictionaries(
    {
        "delay": mostly(st.integers(0, 10**9) | st.floats(0, 10**9) | st.timedeltas(timedelta(0), timedelta(30_000))),
        "retries": mostly(st.integers(0, 5) | st.none()),
        "id": mostly(st.text("abc:/@0", min_size=1, max_size=4) | st.none()),
        "headers": mostly(st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)),
    }
)
jsons = st.recursive(st.none() | st.text() | st.floats(allow_nan=False), lambda inner: st.lists(inner), max_leaves=5)


@pytest.mark.long
@pytest.mark.parametrize(("codec", "payloads"), [("json", jsons), ("bytes", st.binary()), ("text", st.text())])
def test_any_send_is_stored_exactly_once_or_refused_by_a_typed_error(redis_url, redis_client, codec, payloads):
    outcomes = {"stored": 0, "refused": 0}

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(mostly(payloads), sends, st.booleans(), st.booleans())
    def send(payload, options, replace, many):
        queue.purge()
        before = contents(redis_client)
        try:
            if many:
                (sent,) = queue.send_many([NewMessage(payload, **options)], replace=replace)
            else:
                sent = queue.send_delay_msg(payload, **options, replace=replace)
        except (ConfigurationError, PayloadError):
            outcomes["refused"] += 1
            assert contents(redis_client) == before
        else:
            outcomes["stored"] += 1
            assert sent.new
            assert queue.counts().living == 1
            info = queue.get(sent.id)
            assert info.state in (State.PENDING, State.READY)
            assert info.headers == (options["headers"] or {})
            assert info.retries_left == (3 if options["retries"] is None else options["retries"])
            assert redis_client.hgetall(f"delayq:{{{queue.name}}}:messages") == {
                sent.id.encode(): queue.codec.encode(payload)
            }

    with DelayQueue("fuzz", url=redis_url, codec=codec) as queue:
        send()
    assert min(outcomes.values()) > 10, outcomes


def test_an_unknown_option_of_a_send_is_refused_with_the_one_that_may_be_meant():
    with DelayQueue("reminders", url=NOWHERE) as queue:
        for send, when in ((queue.send_delay_msg, 5), (queue.send_schedule_msg, datetime(2027, 1, 1, tzinfo=UTC))):
            with pytest.raises(ConfigurationError, match="unknown option 'prority', did you mean 'priority'"):
                send("x", when, id="a", prority=5)
