"""The encrypting codec by itself: keys, what is stored, and everything that it refuses."""

from __future__ import annotations

import base64
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError, Encrypted, PayloadError, UndecodableError
from delayq.privacy.ciphertext import KEY_ID, MARK, head_of, is_encrypted, read_key_id

OLD, NEW = bytes(range(16)), bytes(range(100, 132))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def codec(**keys):
    return Encrypted(keys or {"new": NEW}).for_queue("cards")


@given(JSON, st.sampled_from([OLD, bytes(24), NEW]))
def test_any_payload_survives_the_round_trip_under_any_length_of_key(payload, key):
    sealed = codec(k=key)
    assert sealed.decode(sealed.encode(payload)) == sealed.decode(sealed.encode_stable(payload)) == payload


def test_equal_payloads_become_different_bytes_unless_they_are_compared_as_stored():
    sealed = codec()
    assert sealed.encode({"card": 1}) != sealed.encode({"card": 1})
    assert sealed.encode_stable({"card": 1}) == codec().encode_stable({"card": 1})
    assert sealed.encode_stable({"card": 1})[:40] != codec(new=OLD).encode_stable({"card": 1})[:40]


def test_what_is_stored_shows_the_id_of_the_key_and_nothing_else():
    stored = codec().encode({"card": "4111"})
    assert stored.startswith(head_of("new"))
    assert read_key_id(stored) == "new"
    assert len(stored) == len(head_of("new")) + 12 + len(b'{"card":"4111"}') + 16
    assert b"4111" not in stored


def test_the_first_key_encrypts_and_all_decrypt():
    both, old = codec(new=NEW, old=OLD), codec(old=OLD)
    assert both.decode(old.encode(1)) == 1
    with pytest.raises(UndecodableError, match="encrypted with key new, which is not there"):
        old.decode(both.encode(1))


def test_a_payload_of_another_queue_is_refused_unless_both_have_the_same_name():
    keys = {"new": NEW}
    stored = Encrypted(keys).for_queue("cards").encode(1)
    with pytest.raises(UndecodableError, match="moved from another queue"):
        Encrypted(keys).for_queue("other").decode(stored)
    shared = Encrypted(keys, name="cards")
    assert shared.for_queue("other").decode(stored) == shared.for_queue("x").for_queue("other").decode(stored) == 1


@given(st.data())
def test_no_changed_or_cut_byte_is_accepted(data):
    stored = codec().encode({"card": "4111"})
    at = data.draw(st.integers(0, len(stored) - 1))
    changed = bytearray(stored)
    changed[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(changed), stored[:at], stored + b"x"):
        with pytest.raises(UndecodableError, match="undecodable: "):
            codec().decode(bad)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_undecodable_and_never_anything_else(rest):
    for data in (rest, MARK + rest, head_of("new") + rest):
        with pytest.raises(UndecodableError):
            codec().decode(data)
        assert read_key_id(data) is None or KEY_ID.fullmatch(read_key_id(data))


def test_payloads_in_the_clear_are_decoded_only_when_they_are_allowed():
    with pytest.raises(UndecodableError, match="not encrypted"):
        codec().decode(b"1")
    assert Encrypted({"new": NEW}, allow_plain=True).for_queue("cards").decode(b"1") == 1


def test_rekeying_changes_what_has_another_key_only():
    both = codec(new=NEW, old=OLD)
    stored = both.rekeyed(codec(old=OLD).encode(7))
    assert codec(new=NEW).decode(stored) == 7
    assert both.rekeyed(stored) is None


def test_keys_may_be_base64_of_either_alphabet():
    key = bytes(range(224, 256))
    for text in (base64.b64encode(key).decode(), f"{base64.urlsafe_b64encode(key).decode()}\n"):
        assert codec(k=text).decode(codec(k=key).encode(1)) == 1


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "keys must map"),
        (NEW, "keys must map"),
        ({"k": b"short-secret"}, "key k must be 16, 24 or 32 bytes, not 12"),
        ({"k": "secret secret!"}, "key k must be 16, 24 or 32 bytes"),
        ({"k": "c2hvcnQ="}, "key k must be 16, 24 or 32 bytes, not 5"),
        ({"k": None}, "key k must be 16"),
        ({"a b": NEW}, "the id of a key must be"),
        ({"": NEW}, "the id of a key must be"),
        ({1: NEW}, "the id of a key must be"),
        ({"k" * 65: NEW}, "the id of a key must be"),
    ],
    ids=["none", "no-map", "bytes", "no-base64", "base64", "None", "blank", "empty", "number", "long"],
)
def test_wrong_keys_are_refused_without_quoting_them(keys, text):
    with pytest.raises(ConfigurationError, match=text) as error:
        Encrypted(keys)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("options", [{"codec": "yaml"}, {"name": ""}, {"name": 1}, {"allow_plain": 1}], ids=str)
def test_wrong_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        Encrypted({"new": NEW}, **options)


def test_an_inner_codec_must_make_bytes():
    class Odd:
        def encode(self, payload):
            return bytearray(b"1")

        def decode(self, data):
            return 1

    with pytest.raises(PayloadError, match="must encode to bytes, not bytearray"):
        Encrypted({"new": NEW}, Odd()).for_queue("q").encode(1)


def test_no_repr_shows_a_key_and_no_codec_can_be_pickled():
    sealed = Encrypted({"new": NEW, "old": OLD})
    assert repr(sealed) == "<Encrypted with keys new, old>"
    assert "new, old" in repr(sealed.for_queue("q"))
    with pytest.raises(TypeError):
        pickle.dumps(sealed)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[crypto\]'"):
        codec()


def test_nothing_that_is_text_looks_encrypted():
    assert not is_encrypted("\u0093dq\u0001".encode())
    with pytest.raises(UnicodeDecodeError):
        MARK.decode()


def test_results_are_no_payloads_and_payloads_no_results():
    codec = Encrypted({"a": bytes(16)}).for_queue("cards")
    results = codec.for_results()
    assert results.decode(results.encode(1)) == 1
    for one, other in ((codec, results), (results, codec)):
        with pytest.raises(UndecodableError):
            one.decode(other.encode(1))
