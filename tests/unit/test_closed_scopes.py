"""What a consumer does not start of a closed scope: all in flight when Redis is told, and nothing claimed later."""

from __future__ import annotations

import math

import pytest

from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import ClaimedMessage
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.breakers import ClosedScopes, scope_closed


def delivery(token, name="a"):
    attributes = f"name={name}".encode() if name else b""
    claimed = ClaimedMessage(f"m{token}", token, b"", 3, 0, 1, b"", attributes)
    return InFlightDelivery(claimed, 0.0, 0, math.inf, Attributes.of(attributes))


def in_flight(*deliveries):
    return dict.fromkeys(deliveries)


def test_a_closed_name_scopes_what_is_claimed_until_redis_has_been_told():
    scopes, old, new = ClosedScopes(None), delivery(7), delivery(9)
    assert not scopes.closed
    scopes.close("a")
    assert scopes.closes(old)
    assert not scopes.update({"a"}, in_flight(old))
    assert scopes.closes(new)
    assert not scopes.update((), in_flight(old))
    assert (scopes.closes(old), scopes.closes(new)) == (True, False)
    assert not any(map(scopes.closes, (delivery(7, "b"), delivery(7, ""))))
    assert not scopes.closes_queue(old)


def test_a_name_is_forgotten_when_what_it_scopes_has_gone():
    scopes, old, new = ClosedScopes(None), delivery(7), delivery(9)
    scopes.close("a")
    scopes.update((), in_flight(old))
    scopes.update((), in_flight(old, new))
    assert scopes.closed
    scopes.update((), in_flight(new))
    assert not scopes.closed


def test_a_name_of_which_nothing_is_in_flight_is_forgotten_at_once():
    scopes = ClosedScopes(None)
    scopes.close("a")
    scopes.update((), {})
    assert not scopes.closed


def test_a_closed_queue_wants_back_what_has_not_started():
    scopes, running, waiting = ClosedScopes(None), delivery(7), delivery(8, "")
    running.batch = Batch(0.0, [True])
    scopes.close(None)
    assert not scopes.update({None}, in_flight(running, waiting))
    assert scopes.update((), in_flight(running, waiting))
    assert scopes.update((), in_flight(running, waiting, delivery(9)))
    assert not scopes.update((), in_flight(running, delivery(9)))
    assert (scopes.closes_queue(waiting), scopes.closes_queue(delivery(9))) == (True, False)


def test_closing_again_scopes_what_was_claimed_meanwhile():
    scopes, old, new = ClosedScopes(None), delivery(7), delivery(9)
    scopes.close("a")
    scopes.update((), in_flight(old))
    scopes.close("a")
    scopes.update((), in_flight(old, new))
    assert scopes.closes(new)


@pytest.mark.parametrize(
    ("name", "scope", "held"), [("a", "name", "a"), ("", "name", ""), ("a", "queue", None), ("a", "message", "")]
)
def test_scope_of_rate_limited(name, scope, held):
    assert scope_closed(delivery(7, name), scope) == held
