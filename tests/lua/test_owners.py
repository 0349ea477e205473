"""The reply of a send says who has each id that it leaves as it was."""

from __future__ import annotations

import pytest

from delayq.broker.requests import Outgoing, OutgoingTable
from tests.lua.cases.states import CROWD, STATES, remembering
from tests.support.scripts import NOW, World, calls, plant

TIMES = {"pending": 60_000, "rescheduled": 60_000}
OWNED = {
    "pending": "pending",
    "rescheduled": "pending",
    "ready": "ready",
    "released": "ready",
    "leased": "leased",
    "backoff": "backoff",
    "retry": "retry",
    "ranked": "ranked",
}
NEW = Outgoing("a", 5000, 3, b"new", b"")


def send(*messages, **options):
    table = OutgoingTable(*map(list, zip(*messages, strict=True)))
    return calls.send(table, max_length=None, **options)


def owned(state, due):
    return f"{state} {NOW + due}"


@pytest.mark.parametrize("state", OWNED)
def test_send_names_the_state_and_the_due_time_of_an_existing_message(executor, state):
    for call in (calls.send_one(NEW), send(NEW)):
        executor.client.flushdb()
        plant(executor, STATES[state] + CROWD)
        reply = executor.call(call)
        assert (reply, reply.at, reply.placings) == ("0", NOW * 1000, [owned(OWNED[state], TIMES.get(state, -5))])


def test_send_names_a_running_message_that_it_cannot_replace(executor):
    plant(executor, STATES["leased"])
    assert executor.call(send(NEW, replace=True)).placings == [owned("leased", -5)]


def test_send_says_until_when_a_settled_id_is_refused(executor):
    for call in (calls.send_one(NEW), send(NEW)):
        executor.client.flushdb()
        plant(executor, remembering(1000, a=-400))
        reply = executor.call(call)
        assert (reply, reply.placings) == ("5", [owned("settled", 600)])


def test_send_of_a_message_without_a_place_does_not_know_its_time(executor):
    for call in (calls.send_one(NEW), send(NEW)):
        executor.client.flushdb()
        plant(executor, World(messages={"a": "A"}))
        assert executor.call(call).placings == ["pending -"]


@pytest.mark.parametrize("state", ["gone", "dead", "garbage"])
def test_what_is_stored_or_spent_has_no_owner(executor, state):
    for call in (calls.send_one(NEW), send(NEW)):
        executor.client.flushdb()
        plant(executor, STATES[state])
        assert executor.call(call).placings == [NOW * 1000]


def test_a_batch_names_the_owners_of_those_it_leaves(executor):
    plant(executor, STATES["leased"] + CROWD + remembering(1000, z=-1))
    batch = [NEW._replace(id=id) for id in ("n", "a", "p", "z", "q", "n")]
    reply = executor.call(send(*batch, replace=True))
    at = NOW * 1000
    assert (reply, reply.placings) == ("132520", [at, owned("leased", -5), at, owned("settled", 999), at, "pending -"])
    after = executor.call(send(NEW._replace(id="n2"), NEW, replace="after"))
    assert (after, after.placings) == ("16", [at, at])
