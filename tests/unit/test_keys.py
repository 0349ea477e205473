"""The keys of a queue; valid names and ids."""

import string
from dataclasses import fields

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.broker.keys import Keys, check_id, check_name, registry

HOSTILE = [
    "",
    " ",
    "a b",
    "a" * 129,
    "a" * 10_000,
    "{a}",
    "a}b",
    "a{",
    "*",
    "a?",
    "[ab]",
    "a\r\nFLUSHALL",
    "a\n",
    "\r",
    "a\x00b",
    "\x1b[31m",
    "\u202eabc",
    "quеue",  # with a Cyrillic е
    "ｑueue",
    "queue٣",
    "é",
    "\ud800",
    "a#b",
    "a,b",
    "a'b",
    'a"b',
    "a\\b",
    "a$b",
    "a%b",
    "a;b",
    "a|b",
    "a<b>",
    b"bytes",
    None,
    5,
    10**5000,
    1.5,
    True,
    ["a"],
    object(),
]


def shown(value):
    return type(value).__name__ if isinstance(value, int) else repr(value)[:20]


@pytest.mark.table("name", [*HOSTILE, "a:b", "a/b", "a@b", "a+b", "a=b"], ids=shown)
def test_a_hostile_name_is_refused(name):
    with pytest.raises(ConfigurationError) as caught:
        check_name(name)
    _tame(caught.value)
    with pytest.raises(ConfigurationError):
        Keys.of("delayq", name)
    with pytest.raises(ConfigurationError):
        Keys.of(name, "reminders")


@pytest.mark.table("id", HOSTILE, ids=shown)
def test_a_hostile_id_is_refused(id):
    with pytest.raises(ConfigurationError) as caught:
        check_id(id)
    _tame(caught.value)


def _tame(error):
    assert len(str(error)) < 200
    assert str(error).isprintable()


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "a" * 128, "...", "-", "0"])
def test_name_of_letters_digits_dots_and_dashes_is_valid(name):
    assert check_name(name) == name


@pytest.mark.parametrize("id", ["a", "user:42", "me@example.org", "a/b+c=", "a" * 128, ":", "0350yfVhjsJ9TJf2FnzvBT"])
def test_common_ids_of_users_are_valid(id):
    assert check_id(id) == id


@given(st.text(max_size=6))
def test_name_is_valid_only_with_allowed_characters(text):
    allowed = set(string.ascii_letters + string.digits + "._-")
    if text and set(text) <= allowed:
        assert check_name(text) == text
    else:
        with pytest.raises(ConfigurationError):
            check_name(text)


def test_key_is_prefix_queue_in_braces_and_part():
    assert Keys.of("delayq", "reminders").dead_messages == "delayq:{reminders}:dead_messages"


def test_every_part_has_its_own_key_with_the_hash_tag_of_the_queue():
    keys = Keys.of("p", "q")
    spelled = [getattr(keys, part.name) for part in fields(Keys)]
    assert len(set(spelled)) == len(spelled)
    assert all(key.startswith("p:{q}:") for key in spelled)


names = st.text("ab.-_", min_size=1, max_size=5)


@given(names, names, names, names)
def test_different_queues_share_no_key(prefix, name, other_prefix, other):
    assume((prefix, name) != (other_prefix, other))
    mine, theirs = Keys.of(prefix, name), Keys.of(other_prefix, other)
    spelled = {getattr(mine, part.name) for part in fields(Keys)} | {registry(prefix)}
    foreign = {getattr(theirs, part.name) for part in fields(Keys)} | {registry(other_prefix)}
    assert spelled & foreign == ({registry(prefix)} if prefix == other_prefix else set())


@given(names)
def test_registry_key_is_never_a_key_of_a_queue(prefix):
    assert registry(prefix) not in {getattr(Keys.of(prefix, "queues"), part.name) for part in fields(Keys)}
