"""Sends within the hooks of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from delayq.broker.message.attributes import Attributes
from delayq.broker.requests import Outgoing
from delayq.queue.sending.producer import Sent
from delayq.values.codec import decode_headers, encode_headers


@dataclass(slots=True)
class OutgoingMessage:
    """A message that is about to be sent, without its payload, which is encoded already."""

    id: str
    name: str
    """'' for none."""
    headers: dict[str, str] = field(repr=False)
    """May be changed before the send, and are sent as they are then."""


@dataclass(slots=True)
class Sending:
    """One call that sends: a single message, or those of `send_many`."""

    queue: str
    messages: list[OutgoingMessage]
    sent: Sequence[Sent] = ()
    """What became of each message, once it was sent."""


SendHook = Callable[[Sending], AbstractContextManager[Any]]


class HookedSend:
    """A send within one hook; see `observed_sends.SendUnderWay`."""

    def __init__(self, hook: SendHook, queue: str, messages: list[Outgoing]) -> None:
        self.messages = messages
        views = [
            OutgoingMessage(
                one.id, Attributes.of(one.attributes).name, decode_headers(one.headers) if one.headers else {}
            )
            for one in messages
        ]
        self._sending = Sending(queue, views)
        self._around = hook(self._sending)

    @property
    def sent(self) -> Sequence[Sent]:
        """What became of each message."""
        return self._sending.sent

    @sent.setter
    def sent(self, sent: Sequence[Sent]) -> None:
        self._sending.sent = sent

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._around)
            headers = [encode_headers(one.headers) for one in self._sending.messages]
            self.messages = [one._replace(headers=own) for one, own in zip(self.messages, headers, strict=True)]
            entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._around.__exit__(kind, error, traceback)  # whatever it returns: a send that has failed has no result
