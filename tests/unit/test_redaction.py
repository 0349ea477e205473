"""Hidden values by themselves: which ones a path leads to, and what is shown of the rest."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq import ConfigurationError, DelayQueue, Encrypted
from delayq.privacy.redaction import (
    HIDDEN,
    Redacted,
    RedactedPayload,
    check_redact,
    has_hidden,
    preview,
    read_paths,
    write_paths,
)
from delayq.queue.inspecting.decoded_payload import decode_payload, stored_payload

NAMES = st.sampled_from(["a", "b", "card", "number", "0", "a.b", "*"])
LEAVES = st.just("s3cret") | st.integers(0, 9) | st.none()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


def shown(payload, *paths):
    found = Redacted(paths).decode(msgspec.json.encode(payload))
    return msgspec.json.decode(found)


@pytest.mark.parametrize(
    ("path", "payload", "expected"),
    [
        ("email", {"email": "x", "n": 1}, {"email": HIDDEN, "n": 1}),
        ("card.number", {"card": {"number": 1, "name": "Ada"}}, {"card": {"number": HIDDEN, "name": "Ada"}}),
        ("card", {"card": {"number": 1}}, {"card": HIDDEN}),
        (
            "*.email",
            {"a": {"email": 1}, "b": {"email": 2}, "email": 3},
            {"a": {"email": HIDDEN}, "b": {"email": HIDDEN}, "email": 3},
        ),
        ("**.email", {"email": 1, "a": {"b": {"email": 2}}}, {"email": HIDDEN, "a": {"b": {"email": HIDDEN}}}),
        ("card.number", {"card": [{"number": 1}, {"number": 2}]}, {"card": [{"number": HIDDEN}, {"number": HIDDEN}]}),
        ("email", [{"email": 1}], [{"email": HIDDEN}]),
        ("*.email", [{"email": 1}], [{"email": HIDDEN}]),
        ("rows.1", {"rows": [1, 2]}, {"rows": [1, HIDDEN]}),
        ("card.number", {"card.number": 1}, {"card.number": HIDDEN}),
        (
            "**.email",
            {"buyer.email": 1, "a": {"b.c": {"email": 2}}},
            {"buyer.email": HIDDEN, "a": {"b.c": {"email": HIDDEN}}},
        ),
        ("buyer", {"buyer.email": 1}, {"buyer.email": HIDDEN}),
        ("*", {"a": 1, "b": [2]}, {"a": HIDDEN, "b": HIDDEN}),
        ("**", "x", HIDDEN),
        ("email", {"Email": 1}, {"Email": 1}),
        ("email", "email", "email"),
    ],
    ids=[
        "field",
        "nested",
        "object",
        "any",
        "deep",
        "list",
        "lists",
        "any-list",
        "place",
        "dots",
        "dots-deep",
        "dots-inside",
        "all",
        "whole",
        "case",
        "text",
    ],
)
def test_a_path_leads_to_these_values(path, payload, expected):
    assert shown(payload, path) == expected


def _has(value, path):
    """Tell whether a path of plain names leads anywhere in a value; lists are passed through."""
    if not path:
        return True
    if isinstance(value, list):
        return any(_has(one, path) for one in value)
    return isinstance(value, dict) and path[0] in value and _has(value[path[0]], path[1:])


@given(VALUES, st.lists(st.sampled_from(["a", "b", "card", "number"]), min_size=1, max_size=3))
@example({"a": [{"b": "s3cret"}]}, ["a", "b"])
def test_what_a_path_leads_to_is_hidden_and_nothing_is_said_to_be_that_is_not(value, path):
    stored = msgspec.json.encode(value)
    found = Redacted([".".join(path)]).decode(stored)
    if isinstance(found, RedactedPayload):
        assert HIDDEN in found.decode()
    else:
        assert found == stored
        assert not _has(value, path)


@given(VALUES)
def test_whatever_is_inside_two_stars_hide_it(value):
    found = Redacted(["**"]).decode(msgspec.json.encode(value))
    assert msgspec.json.decode(found) == HIDDEN


@pytest.mark.parametrize(
    "stored",
    [b'{"email": "x', b"\xff\xfe", b"plain text", b"[" * 100_000, b"[" * 900 + b"]" * 900 + b" x"],
    ids=["cut", "binary", "text", "deep", "more"],
)
def test_what_is_no_json_is_hidden_as_a_whole(stored):
    assert decode_payload(Redacted(["email"]).decode(stored), len(stored)) == (HIDDEN, "redacted", False)


def test_encrypted_bytes_stay_as_they_are():
    stored = Encrypted({"k": bytes(16)}).for_queue("q").encode({"email": "x"})
    assert Redacted(["email"]).decode(stored) == stored


def test_a_payload_without_hidden_values_is_what_is_stored():
    stored = b'{"n": 1.0e5}'
    assert decode_payload(Redacted(["email"]).decode(stored), len(stored)) == ({"n": 1e5}, "json", False)


@pytest.mark.parametrize(
    "stored", [b'{"email":"x","email":1,"n":2}', b'{"a":{"email":"x"},"a":1}', b'{"n": "x", "n": 2}'], ids=range(3)
)
def test_of_a_field_that_is_there_twice_the_first_is_not_shown(stored):
    found = Redacted(["**.email"]).decode(stored)
    assert isinstance(found, RedactedPayload)
    assert b"x" not in found


@given(VALUES)
def test_a_payload_in_other_words_is_shown_as_it_is_stored(value):
    stored = json.dumps(value, indent=1).encode()
    found = Redacted(["email"]).decode(stored)
    assert found == stored
    assert not isinstance(found, RedactedPayload)


def test_what_stands_for_a_hidden_value_is_found():
    assert has_hidden(b'{"a":[{"b":"[redacted]"}]}')
    assert not has_hidden(b'{"[redacted]":"a [redacted]"}')
    assert not has_hidden(b"[redacted]")


def test_a_preview_is_not_said_to_be_cut():
    stored = b'{"email":"%b"}' % (b"x" * 100)
    assert preview(Redacted(["email"]).decode(stored), len(stored)) == '{"email":"[redacted]"}'


def test_a_redacted_payload_is_never_stored_again():
    with pytest.raises(ConfigurationError, match=r"payload is redacted, .*: list or export it with --reveal"):
        stored_payload({"email": HIDDEN}, "redacted")


@pytest.mark.parametrize(
    "paths",
    [
        ["$.card"],
        ["/card"],
        ["card[0].n"],
        ["*mail"],
        ["n "],
        [" n"],
        ["***"],
        "email",
        [""],
        ["a..b"],
        [".a"],
        [1],
        {"a"},
        ["a"] * 101,
        ["a" * 201],
        b"a",
    ],
    ids=lambda one: str(one)[:9],
)
def test_paths_that_are_none_are_refused(paths):
    with pytest.raises(ConfigurationError, match="redact"):
        DelayQueue("q", redact=paths)


def test_paths_are_stored_as_they_are_given():
    paths = check_redact(["card.number", "*.email"])
    assert read_paths(write_paths(paths)) == [*paths]
    assert read_paths(None) == []


@pytest.mark.parametrize("stored", [b"{}", b"\xff", b"[1]"], ids=["object", "binary", "numbers"])
def test_all_is_hidden_by_what_another_program_has_written(stored):
    assert shown({"a": 1}, *read_paths(stored)) == HIDDEN
