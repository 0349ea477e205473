"""Hostile input is refused by a typed error or kept as it is: never another exception, never a wait without end."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from itertools import product
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError, DelayqError, DelayQueue, Reject, Retry, ServerError, State
from delayq.broker.keys import Keys, check_id, check_name, registry
from delayq.cli.admin.acl import rules
from delayq.options import QueueOptions
from tests.security.hostile import texts, things
from tests.support.waiting import wait_until
from tests.unit.test_bad_input import ARGUMENTS

pytestmark = pytest.mark.timeout(300)

PATIENCE = 5.0
"""Seconds that no single call may take."""


@pytest.fixture(autouse=True)
def log_kept_from_pytest(monkeypatch) -> None:
    """What is logged here may be no text at all, which pytest cannot hand from one of its processes to the other."""
    monkeypatch.setattr(logging.getLogger("delayq.consumer"), "disabled", True)


@pytest.fixture(scope="module", params=["redis", "embedded"])
def place(request, session_redis_url) -> str:
    """Where the queues live."""
    return str(session_redis_url) if request.param == "redis" else "memory://hostile"


def fewer(number: int, place: str) -> int:
    """Return a number of cases: a third of it where Redis is embedded, which takes longer."""
    return number // 3 if place.startswith("memory") else number


# Names and ids


def test_keys_are_equal_only_if_prefix_and_queue_are(cases):
    @cases(5000)
    @given(texts, texts, st.sampled_from(["delayq", "a", "a:b", "a}", "{a"]))
    def compare(queue, other_queue, prefix):
        other_prefix = "delayq"
        said, made = refusal(lambda: (Keys.of(prefix, queue), Keys.of(other_prefix, other_queue)))
        if said is not None:
            return
        ours, theirs = made
        shared = set(astuple(ours)) & set(astuple(theirs))
        if (prefix, queue) == (other_prefix, other_queue):
            assert ours == theirs
        else:
            assert not shared
        assert not {registry(prefix), registry(other_prefix)} & {*astuple(ours), *astuple(theirs)}
        assert len(set(astuple(ours))) == len(astuple(ours))

    compare()


def refusal(act: Callable[[], Any]) -> tuple[str | None, Any]:
    """Return what a typed error says, and what comes back if there is none; any other exception passes through."""
    try:
        return None, act()
    except DelayqError as wrong:
        said, expected = str(wrong), not isinstance(wrong, ServerError)
    assert expected, said
    assert 0 < len(said) < 300
    assert said.isprintable()
    return said, None


names = st.sampled_from(sorted("".join(name) for n in (1, 2) for name in product("aA0._-", repeat=n)))


def test_similar_names_have_different_keys(cases):
    @cases(4500)
    @given(names, names, names, names)
    def compare(prefix, queue, other_prefix, other_queue):
        ours, theirs = Keys.of(prefix, queue), Keys.of(other_prefix, other_queue)
        assert bool(set(astuple(ours)) & set(astuple(theirs))) is ((prefix, queue) == (other_prefix, other_queue))

    compare()


def test_names_and_ids_are_valid_or_refused(cases):
    @cases(5000)
    @given(things)
    def check_value(value):
        for check, allowed in ((check_name, "._-"), (check_id, "._-:@/+=")):
            said, taken = refusal(lambda check=check: check(value))
            if said is None:
                assert taken == value
                assert 1 <= len(value) <= 128
                assert all(sign.isascii() and (sign.isalnum() or sign in allowed) for sign in value)
        try:
            rights = rules(["admin"], prefix=value, queue=value)
        except ConfigurationError:
            return
        assert f"~{value}:{{{value}}}:*" in rights

    check_value()


# Options and arguments of every kind


def test_options_are_accepted_or_refused(cases):
    @cases(3000)
    @given(st.sampled_from([*QueueOptions.__annotations__, "interval", ""]), things)
    def open_queue(name, value):
        if name in ("url", "redis"):
            return
        refusal(lambda: DelayQueue("q", url="redis://127.0.0.1:1/0", **{name: value}))

    open_queue()


ACTS = sorted(
    {case.id.rsplit("-", 2)[0]: case.values[0] for case in ARGUMENTS if "block" not in case.id}.items(),
    key=lambda one: one[0],
)


def test_arguments_are_accepted_or_refused(place, cases):
    """Each call of the queue with anything at all: it answers, or raises an error that says what is wrong."""
    outcomes: Counter[str] = Counter()

    @cases(1000)
    @given(st.sampled_from(ACTS), things)
    def act(what, value):
        began = time.monotonic()
        said, _ = refusal(lambda: what[1](queue, value))
        outcomes["taken" if said is None else "refused"] += 1
        assert time.monotonic() - began < PATIENCE
        if what[0] == "lease_n" and queue.counts().active > 500:
            queue.purge()

    with DelayQueue("hostile", url=place, max_payload=1000, deadline=5) as queue:
        act()
        queue.purge()
    assert min(outcomes["taken"], outcomes["refused"]) > cases(1000).max_examples // 20, outcomes


# What is sent comes back


def test_any_payload_and_headers_survive_the_round_trip(place, cases):
    headers = st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3)

    @cases(fewer(300, place))
    @given(st.binary(max_size=60), headers.filter(encodable))
    def there_and_back(payload, top):
        sent = queue.send_delay_msg(payload, headers=top)
        with queue.lease() as message:
            assert (message.id, message.payload, message.headers) == (sent.id, payload, top)

    with DelayQueue("bytes", url=place, codec="bytes") as queue:
        there_and_back()
        assert queue.counts().living == 0


def encodable(top: dict[str, str]) -> bool:
    return "".join([*top, *top.values()]).encode("utf-8", "replace").decode() == "".join([*top, *top.values()])


def test_any_text_is_a_reason_or_an_error(place, cases):
    """Said by hand, and raised in a worker, which lives through all of them."""
    ended: SimpleQueue[str] = SimpleQueue()
    raising: list[BaseException] = []

    @cases(fewer(200, place))
    @given(texts, st.sampled_from(["reject", "nack", "raise", "retry", "rejected"]))
    def end(text, how):
        raised = {"raise": ValueError(text), "retry": Retry(text, delay=3600), "rejected": Reject(text)}.get(how)
        into = by_hand if raised is None else queue
        if raised is not None:
            raising.append(raised)
        sent = into.send_delay_msg(1, retries=1)
        if raised is not None:
            assert ended.get(timeout=PATIENCE) == sent.id
            wait_until(lambda: queue.counts().active == 0, PATIENCE, every=0.001)
        else:
            with by_hand.lease() as message:
                assert message.reject(text) if how == "reject" else message.nack(error=text, delay=3600)
        found = into.get(sent.id)
        assert len(found.error) <= 2048
        assert len(found.reason) <= 2048
        if how in ("reject", "nack"):
            assert (found.reason or found.error) == text[:2048].encode("utf-8", "replace").decode()
        into.cancel(sent.id)

    def fail(message: Any) -> None:
        ended.put(message.id)
        raise raising.pop()

    with (
        DelayQueue("texts", url=place) as by_hand,
        DelayQueue("raised", url=place, callback=fail, nack_delay="1h", grace=1) as queue,
    ):
        consuming = queue.start_consume()
        end()
        assert consuming.running
        queue.stop_consume()


# What is stored by others


class Reminder(msgspec.Struct):
    """A payload of a queue that is typed."""

    user: int


BOMBS = {
    "nested arrays": b"[" * 100_000,
    "nested arrays, closed": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of a million digits": b"9" * 1_000_000,
    "a large exponent": b"1e999999999",
    "many exponents": b"[" + b"1e400," * 50_000 + b"1]",
    "a text of 1 MiB": b'"' + b"x" * (1 << 20),
    "escapes": b'"' + b"\\u0000" * 100_000,
    "half a surrogate": b'"\\ud800"x',
    "no UTF-8": b'"\xff\xfe"',
    "a byte order mark": b"\xef\xbb\xbf1",
    "nothing": b"",
    "blanks": b" " * 100_000,
    "an object without end": b'{"a"' + b',"a"' * 100_000,
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("payload_type", [None, Reminder], ids=["any", "typed"])
def test_deeply_nested_payload_goes_to_the_dead_letter(name, payload_type, place):
    queue_name = "bombs-typed" if payload_type else "bombs"
    with DelayQueue(queue_name, url=place, codec="bytes", max_payload=8 << 20) as planting:
        planting.dead.purge(all=True)
        planting.send_delay_msg(BOMBS[name], id="bomb")
        planting.send_delay_msg(b'{"user": 42}', id="good")
    seen: list[Any] = []
    with DelayQueue(queue_name, url=place, payload_type=payload_type, callback=seen.append, nack_delay=0) as queue:
        began = time.monotonic()
        queue.run(burst=True)
        assert time.monotonic() - began < PATIENCE
        decodable = name in ("many exponents", "a number of a million digits", "a large exponent") and not payload_type
        good = [message.id for message in seen]
        assert "good" in good
        if "bomb" in good:
            assert decodable
        else:
            (dead,) = queue.dead.list().messages
            assert (dead.id, dead.state) == ("bomb", State.DEAD)
            assert dead.reason.startswith("undecodable")
            assert len(dead.reason) < 300
        with queue.lease() as nothing:
            assert nothing is None


def test_any_stored_payload_is_delivered_or_dead(place, cases):
    @cases(fewer(150, place))
    @given(
        st.lists(st.binary(max_size=20) | st.sampled_from([b"1", b"[[", b'"\\ud800"', b"{}"]), min_size=1, max_size=5)
    )
    def work(payloads):
        seen.clear()
        raw.send_many(payloads)
        wait_until(lambda: len(seen) + raw.counts().dead == len(payloads), PATIENCE, every=0.001)
        raw.dead.purge(all=True)

    seen: list[Any] = []
    with (
        DelayQueue("stored", url=place, codec="bytes") as raw,
        DelayQueue("stored", url=place, callback=seen.append, grace=1, nack_delay=0) as queue,
    ):
        consuming = queue.start_consume()
        work()
        assert consuming.running
        queue.stop_consume()
        assert queue.counts().living == 0
