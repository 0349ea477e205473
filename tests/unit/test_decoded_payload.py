"""Payloads for people: indents, and the way back to what is stored."""

from __future__ import annotations

import msgspec
import pytest

from delayq import ConfigurationError
from delayq.queue.inspecting.decoded_payload import decode_payload, indented, stored_payload


def nested(levels):
    return [nested(levels - 1)] if levels else 0


@pytest.mark.parametrize(
    ("payload", "has_indents"),
    [
        ({"a": [1, 2]}, True),
        ("[" * 1000, True),
        ('"' + "[" * 1000, True),
        (nested(32), True),
        (nested(33), False),
        ([0] * 30_000, True),
        ([0] * 40_000, False),
    ],
    ids=["small", "text", "quoted text", "32 levels", "33 levels", "60 KB", "80 KB"],
)
def test_json_has_indents_unless_they_would_fill_the_memory(payload, has_indents):
    text = indented(payload)
    assert msgspec.json.decode(text) == payload
    assert text == (msgspec.json.format(msgspec.json.encode(payload), indent=2).decode() if has_indents else text)
    assert ("\n" in text) is (has_indents and not isinstance(payload, str))
    assert len(text) < 1_000_000


@pytest.mark.parametrize("stored", [b'{"a":[1,2]}', b"no json", b"\xff\x00"], ids=["json", "text", "bytes"])
def test_what_was_decoded_becomes_what_was_stored(stored):
    payload, encoding, _ = decode_payload(stored, len(stored))
    assert stored_payload(payload, encoding) == stored


@pytest.mark.parametrize(
    ("payload", "encoding", "problem"),
    [
        (1, "xml", "encoding must be"),
        (1, "text", "must be a text"),
        ("?", "base64", "not base64"),
        ("\ud800", "text", "not text"),
    ],
)
def test_what_is_not_of_its_encoding_is_refused(payload, encoding, problem):
    with pytest.raises(ConfigurationError, match=problem):
        stored_payload(payload, encoding)
