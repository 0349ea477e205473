"""Encrypted payloads: AES-GCM around another codec, with keys that can be replaced (extra `crypto`)."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from os import urandom
from typing import Any

from delayq.errors import ConfigurationError, PayloadError, UndecodableError, short_repr
from delayq.privacy.ciphertext import KEY_ID, MARK, NONCE, TAG, head_of, read_key_id
from delayq.values.checks import check_bool
from delayq.values.codec import Codec, canonical_encode, find_codec

_LENGTHS = (16, 24, 32)
"""Bytes of a key of AES-128, AES-192 and AES-256."""


class Encrypted:
    """A codec that encrypts what another one encodes: `DelayQueue("cards", codec=Encrypted(keys))`.

    Payloads, results and progress are encrypted with AES-GCM before they leave the process, each with a random nonce
    of 96 bits. Redis, its files and those who read them see the id of the key and the length. The name of the queue is
    authenticated: a payload that is copied to another queue, cut or changed cannot be decoded. Headers, ids, names of
    messages and errors are not encrypted: see `delayq docs privacy`. Its `repr` shows no key.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        codec: str | Codec = "json",
        *,
        name: str | None = None,
        allow_plain: bool = False,
    ) -> None:
        """Encrypt with the first of `keys`; payloads of all of them can be decoded.

        `keys` maps ids (1 to 64 of `A-Z a-z 0-9 . _ -`, stored with each payload) to keys: 16, 24 or 32 bytes, or these
        in base64. `codec` encodes what is encrypted: `"json"`, `"text"`, `"bytes"` or an object. `name` is
        authenticated in place of the queue's name, for queues that pass stored payloads on to one another, such as
        before a relay.
        With `allow_plain`, payloads that are not encrypted are decoded too, while a queue that has some changes over.
        Raises `ConfigurationError` for keys that are none, or if the extra `crypto` is missing.
        """
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError("keys must map the id of each key to its 16, 24 or 32 bytes, at least one")
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(f"name must be a text, not {short_repr(name)}")
        self._ciphers = {id: _cipher(id, key) for id, key in keys.items()}
        self._first = next(iter(self._ciphers))
        self._secret = hmac.digest(_key_bytes(self._first, keys[self._first]), b"delayq nonces and digests", "sha256")
        self._codec = codec
        self._name = name
        self._allow_plain = check_bool(allow_plain, "allow_plain")
        find_codec(codec, None)

    def __repr__(self) -> str:
        """Show the ids of the keys only."""
        return f"<Encrypted with keys {', '.join(self._ciphers)}>"

    def for_queue(self, queue: str, payload_type: Any = None) -> QueueCipher:
        """Return the codec of a queue, with `encode` and `decode`; queues call it with their own name."""
        inner = find_codec(self._codec, payload_type, queue)
        name = (self._name or queue).encode("utf-8", "surrogatepass")
        return QueueCipher(self._ciphers, self._secret, inner, name, fixed=bool(self._name), plain=self._allow_plain)


class QueueCipher:
    """The codec of one queue with encrypted payloads: made by `Encrypted.for_queue`."""

    def __init__(
        self, ciphers: Mapping[str, Any], secret: bytes, inner: Codec, name: bytes, *, fixed: bool, plain: bool
    ) -> None:
        self._ciphers, self._secret, self._inner, self._name = ciphers, secret, inner, name
        self._fixed, self._plain = fixed, plain
        self._encode_plain = inner.encode
        self._encode_canonical = canonical_encode(inner)
        self._decode_plain = inner.decode
        self._head = head_of(next(iter(ciphers)))
        self._associated = self._head + name
        self._encrypt: Callable[[bytes, bytes, bytes], bytes] = ciphers[next(iter(ciphers))].encrypt

    def __repr__(self) -> str:
        """Show neither keys nor payloads."""
        return f"<QueueCipher with keys {', '.join(self._ciphers)}>"

    def for_queue(self, queue: str, payload_type: Any = None) -> QueueCipher:  # noqa: ARG002 - as `Encrypted` has it
        """Return the same codec for another queue."""
        name = self._name if self._fixed else queue.encode("utf-8", "surrogatepass")
        return QueueCipher(self._ciphers, self._secret, self._inner, name, fixed=self._fixed, plain=self._plain)

    def for_results(self) -> QueueCipher:
        """Return the codec of results and progress, which are no payloads: neither decodes the other."""
        return self._for(b"results")

    def for_plans(self) -> QueueCipher:
        """Return what encrypts the plans of calendars, which are no payloads either."""
        return self._for(b"plans")

    def _for(self, what: bytes) -> QueueCipher:
        name = self._name + b"\0" + what
        return QueueCipher(self._ciphers, self._secret, self._inner, name, fixed=self._fixed, plain=self._plain)

    def encode(self, payload: Any) -> bytes:
        """Return the payload encoded and encrypted; equal payloads become different bytes."""
        plain, nonce = self._encode_plain(payload), urandom(NONCE)
        if type(plain) is not bytes:
            raise _not_bytes(plain)
        return self._head + nonce + self._encrypt(nonce, plain, self._associated)

    def encode_stable(self, payload: Any) -> bytes:
        """Return the same bytes for equal payloads: what is compared as stored, such as schedules, needs that.

        The nonce is a keyed digest of the payload, so that it tells nobody without the key what the payload is.
        """
        return self._seal_checked(self._encode_plain(payload))

    def encode_canonical(self, payload: Any) -> bytes:
        """Return the same bytes also for objects whose fields are in another order: a digest of them is an id."""
        return self._seal_checked(self._encode_canonical(payload))

    def _seal_checked(self, plain: Any) -> bytes:
        if type(plain) is not bytes:
            raise _not_bytes(plain)
        return self.seal_stable(plain)

    def seal(self, plain: bytes) -> bytes:
        """Return encoded bytes encrypted."""
        nonce = urandom(NONCE)
        return self._head + nonce + self._encrypt(nonce, plain, self._associated)

    def seal_stable(self, plain: bytes) -> bytes:
        """Return encoded bytes encrypted, the same for the same ones."""
        nonce = hmac.digest(self._secret, self._associated + b"\n" + plain, "sha256")[:NONCE]
        return self._head + nonce + self._encrypt(nonce, plain, self._associated)

    def decode(self, data: bytes) -> Any:
        """Return the payload; `UndecodableError` if no key fits, or it was cut, changed or is of another queue."""
        return self._decode_plain(self.unseal(data))

    def unseal(self, data: bytes) -> bytes:
        """Return what was encrypted, still encoded; `UndecodableError` as `decode`."""
        if not data.startswith(MARK):
            if self._plain:
                return data
            raise UndecodableError("undecodable: it is not encrypted")
        head = self._head
        if data.startswith(head):
            encrypted, associated, cipher = data[len(head) :], self._associated, self._ciphers
            decrypt = next(iter(cipher.values())).decrypt
        else:
            id = read_key_id(data)
            if id is None or id not in self._ciphers:
                why = "it was cut" if id is None else f"it is encrypted with key {id}, which is not there"
                raise UndecodableError(f"undecodable: {why}")
            head = head_of(id)
            encrypted, associated, decrypt = data[len(head) :], head + self._name, self._ciphers[id].decrypt
        if len(encrypted) < NONCE + TAG:
            raise UndecodableError("undecodable: it was cut")
        try:
            plain: bytes = decrypt(encrypted[:NONCE], encrypted[NONCE:], associated)
        except Exception:  # noqa: BLE001 - whatever the library raises for bytes that are not of this key
            text = "undecodable: encrypted with another key of this id, changed, or moved from another queue"
            raise UndecodableError(text) from None
        return plain

    @property
    def head(self) -> bytes:
        """How bytes begin that are encrypted with the first key."""
        return self._head

    def has_key(self, id: str) -> bool:
        """Tell whether there is a key with this id."""
        return id in self._ciphers

    def rekeyed(self, data: bytes, *, stable: bool = False) -> bytes | None:
        """Return stored bytes encrypted with the first key; None if they are already. Raises as `decode`."""
        if data.startswith(self._head):
            return None
        plain = self.unseal(data)
        return self.seal_stable(plain) if stable else self.seal(plain)


def _not_bytes(plain: object) -> PayloadError:
    return PayloadError(f"the codec must encode to bytes, not {type(plain).__name__}")


def _key_bytes(id: str, key: Any) -> bytes:
    """Return the bytes of a key; raise `ConfigurationError`, which never quotes it."""
    if not isinstance(id, str) or not KEY_ID.fullmatch(id):
        raise ConfigurationError("the id of a key must be 1 to 64 of A-Z a-z 0-9 . _ -")
    if isinstance(key, str):
        try:
            key = base64.b64decode(key.strip().replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"key {id} must be 16, 24 or 32 bytes, as bytes or in base64") from None
    if not isinstance(key, bytes) or len(key) not in _LENGTHS:
        size = f", not {len(key)}" if isinstance(key, bytes) else ""
        raise ConfigurationError(f"key {id} must be 16, 24 or 32 bytes{size}, as bytes or in base64")
    return key


def _cipher(id: str, key: Any) -> Any:
    found = _key_bytes(id, key)
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError("encryption needs the extra: pip install 'delayq[crypto]'") from error
    return AESGCM(found)
