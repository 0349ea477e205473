"""Sending to a stream: as to a delay queue, but at once, and unique only where the sender gives an id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.errors import ConfigurationError
from delayq.producer import Producer
from delayq.streams.calls import OWN_ID
from delayq.values import Outgoing


class StreamProducer(Producer):
    """Turns what users send into operations on a stream."""

    def outgoing(
        self, payload: Any, due: str | int, retries: int | None, id: str | None, headers: Mapping[str, str] | None
    ) -> Outgoing:
        """Return a message ready to be sent; raises what is wrong with it, and that is any time but now."""
        if due != 0:
            raise ConfigurationError("a stream has no delays: send it to a delay queue, and relay that to the stream")
        made = super().outgoing(payload, due, retries, id, headers)
        return made if id is None else made._replace(due=OWN_ID)
