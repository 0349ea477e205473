"""Redriving dead messages with other payloads than those they died with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from delayq.broker.batches import byte_slices
from delayq.broker.context import QueueContext
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, PayloadError
from delayq.queue.inspecting.deaths import BATCH, check_entry
from delayq.queue.sending.producer import BATCH_BYTES
from delayq.queue.sweeps.whole_calls import every_status
from delayq.values.codec import encode_payload


def encode_edited(payloads: Mapping[str, Any], encode: Callable[[Any], bytes], max_bytes: int) -> dict[str, bytes]:
    """Return the encoded payloads; `ConfigurationError` or `PayloadError` if one, or what names it, is wrong."""
    if not isinstance(payloads, Mapping) or not payloads:
        raise ConfigurationError("payloads must map ids or entries of dead messages to their new payloads")
    encoded: dict[str, bytes] = {}
    for which, payload in payloads.items():
        check_entry(which)
        try:
            encoded[which] = encode_payload(payload, encode, max_bytes)
        except PayloadError as error:
            raise type(error)(f"of {which}: {error}") from None
    return encoded


def redrive_edited(
    context: QueueContext, payloads: Mapping[str, bytes], retries: int | None, interval: float
) -> Operation[dict[str, str]]:
    """Redrive dead messages, by entry or id (its last death); a status of each as of the script, 0 for gone."""

    def call(before: str, rows: Sequence[tuple[str, bytes]], done: str) -> ScriptCall[str]:
        entries, texts = zip(*rows, strict=True)
        first = (before + done).count("1") * interval
        return context.calls.redrive(entries, retries=retries, payloads=texts, first=first, interval=interval)

    def redrive(rows: Sequence[tuple[str, bytes]], before: str) -> Operation[str]:
        statuses = ""
        for part in byte_slices([len(payload) for _, payload in rows], BATCH_BYTES, BATCH):
            statuses += yield from every_status(context, partial(call, before + statuses), rows[part])
        return statuses

    first_statuses = yield from redrive(list(payloads.items()), "")
    statuses = dict(zip(payloads, first_statuses, strict=True))
    last: dict[str, str] = {}
    for which in [which for which, status in statuses.items() if status == "0"]:
        (found,) = yield [context.calls.get(which)]
        if found is not None and found.entry:  # it was an id
            last[found.entry] = which
    again = yield from redrive([(entry, payloads[which]) for entry, which in last.items()], first_statuses)
    return statuses | dict(zip(last.values(), again, strict=True))
