"""What a message keeps that is replaced."""

from dataclasses import fields

from delayq import NewMessage
from delayq.queue.sending.message_attributes import KEPT


def test_every_option_of_a_message_is_kept_or_always_given():
    always = {"payload", "delay", "at", "id", "jitter", "unique"}
    of_others = {"missed"}  # of expires and after_outage
    assert {one.name for one in fields(NewMessage)} - always - of_others == KEPT.keys()
