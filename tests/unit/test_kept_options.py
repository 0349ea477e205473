"""What a message keeps that is replaced."""

from dataclasses import fields

from delayq import NewMessage
from delayq.queue.sending.message_options import BESIDE, KEPT


def test_every_option_of_a_message_is_kept_or_always_given():
    always = {"payload", "delay", "at", "id", "jitter", "unique"}
    assert {one.name for one in fields(NewMessage)} - always - set(BESIDE) == set(KEPT)
