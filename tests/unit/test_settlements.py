"""What is settled: a success after the timeout counts, whether the nack is sent, under way or still to be sent."""

from __future__ import annotations

import pytest

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.message.attributes import NONE
from delayq.broker.replies import ClaimedMessage
from delayq.options import QueueOptions, read_settings
from delayq.worker.delivery.disposition import Completion, Disposition, timed_out
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.loop.settlements import PendingSettlements


def send_next(settlements):
    """Return the names of the next calls, and the functions for their replies."""
    sent = list(settlements.plan(0.0))
    return [call.script.name for call, _ in sent], [read for _, read in sent]


@pytest.mark.parametrize("comes", ["before the nack is sent", "while it is under way", "after its reply"])
@pytest.mark.parametrize("ends", [Disposition.ACK, Disposition.DISCARD], ids=["acked", "discarded"])
def test_success_after_the_timeout_is_settled_once_the_nack_has_its_reply(comes, ends):
    settings = read_settings(QueueOptions())
    settlements = PendingSettlements(Calls(Keys.of("delayq", "q")), settings)
    delivery = InFlightDelivery(ClaimedMessage("a", 1, b"1", 3, 0, 1, b""), 0.0, 0, 30.0, NONE)
    success = Completion([delivery], ends)
    settlements.add([timed_out([delivery], 0.1, settings.policy)])
    if comes == "before the nack is sent":
        settlements.add([success])
    names, (read,) = send_next(settlements)
    assert names == ["nack"]
    if comes == "while it is under way":
        settlements.add([success])
    read("1")
    if comes == "after its reply":
        assert not settlements
        settlements.add([success])
    names, (read,) = send_next(settlements)
    assert names == ["ack"]
    read("1")
    assert not settlements


def test_message_that_was_acked_by_hand_after_the_timeout_is_not_acked_again():
    settings = read_settings(QueueOptions())
    settlements = PendingSettlements(Calls(Keys.of("delayq", "q")), settings)
    delivery = InFlightDelivery(ClaimedMessage("a", 1, b"1", 3, 0, 1, b""), 0.0, 0, 30.0, NONE)
    settlements.add([timed_out([delivery], 0.1, settings.policy)])
    _, (read,) = send_next(settlements)
    delivery.by_hand = "ack"
    settlements.add([Completion([delivery], Disposition.ACK)])
    read("1")
    settlements.add([Completion([delivery], Disposition.ACK)])
    assert not settlements
