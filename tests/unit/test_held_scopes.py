"""What a consumer holds back: all that is in flight when Redis is told, and nothing that is claimed later."""

from __future__ import annotations

import math

import pytest

from delayq.broker.attributes import Attributes
from delayq.broker.replies import ClaimedMessage
from delayq.worker.holding import HeldScopes, scope_held
from delayq.worker.in_flight_delivery import Batch, InFlightDelivery


def delivery(token, name="a"):
    attributes = f"name={name}".encode() if name else b""
    claimed = ClaimedMessage(f"m{token}", token, b"", 3, 0, 1, b"", attributes)
    return InFlightDelivery(claimed, 0.0, 0, math.inf, Attributes.of(attributes))


def in_flight(*deliveries):
    return dict.fromkeys(deliveries)


def test_a_closed_name_holds_what_is_claimed_until_redis_has_been_told():
    holds, old, new = HeldScopes(), delivery(7), delivery(9)
    assert not holds
    holds.close("a")
    assert holds.holds(old)
    assert not holds.update({"a"}, in_flight(old))
    assert holds.holds(new)
    assert not holds.update((), in_flight(old))
    assert (holds.holds(old), holds.holds(new)) == (True, False)
    assert not any(map(holds.holds, (delivery(7, "b"), delivery(7, ""))))
    assert not holds.holds_queue(old)


def test_a_name_is_forgotten_when_what_it_holds_has_gone():
    holds, old, new = HeldScopes(), delivery(7), delivery(9)
    holds.close("a")
    holds.update((), in_flight(old))
    holds.update((), in_flight(old, new))
    assert holds
    holds.update((), in_flight(new))
    assert not holds


def test_a_name_of_which_nothing_is_in_flight_is_forgotten_at_once():
    holds = HeldScopes()
    holds.close("a")
    holds.update((), {})
    assert not holds


def test_a_closed_queue_wants_back_what_has_not_started():
    holds, running, waiting = HeldScopes(), delivery(7), delivery(8, "")
    running.batch = Batch(0.0, [True])
    holds.close(None)
    assert not holds.update({None}, in_flight(running, waiting))
    assert holds.update((), in_flight(running, waiting))
    assert holds.update((), in_flight(running, waiting, delivery(9)))
    assert not holds.update((), in_flight(running, delivery(9)))
    assert (holds.holds_queue(waiting), holds.holds_queue(delivery(9))) == (True, False)


def test_closing_again_holds_what_was_claimed_meanwhile():
    holds, old, new = HeldScopes(), delivery(7), delivery(9)
    holds.close("a")
    holds.update((), in_flight(old))
    holds.close("a")
    holds.update((), in_flight(old, new))
    assert holds.holds(new)


@pytest.mark.parametrize(
    ("name", "scope", "held"), [("a", "name", "a"), ("", "name", ""), ("a", "queue", None), ("a", "message", "")]
)
def test_scope_of_rate_limited(name, scope, held):
    assert scope_held(delivery(7, name), scope) == held
