"""What a message keeps that is replaced."""

from dataclasses import fields

from delayq import NewMessage
from delayq.queue.sending.message_options import KEPT


def test_every_option_of_a_message_is_kept_or_always_given():
    always = {"payload", "delay", "at", "id", "jitter", "unique"}
    of_expires = {"missed"}
    assert {one.name for one in fields(NewMessage)} - always - of_expires == set(KEPT)
