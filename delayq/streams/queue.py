"""The faces of a stream queue, blocking and asyncio side by side: the consumer and the leases are a delay queue's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, Unpack, cast, overload

from delayq.calls import Calls
from delayq.config import QueueOptions
from delayq.consumer import AsyncConsumer, Consumer
from delayq.errors import ConfigurationError
from delayq.face import AsyncFace, BlockingFace, Face
from delayq.inspector import Counts, MessageInfo, Page
from delayq.keys import check_name
from delayq.message import AsyncMessage, Message
from delayq.operation import Operation
from delayq.producer import NewMessage, Sent, SentMany
from delayq.puller import AsyncPuller, Puller
from delayq.states import State
from delayq.streams.calls import StreamCalls, preload
from delayq.streams.dead_letter import AsyncStreamDeadLetter, StreamDeadLetter
from delayq.streams.inspector import StreamInspector
from delayq.streams.keys import StreamKeys, check_stream
from delayq.streams.producer import StreamProducer
from delayq.twins import twin

T = TypeVar("T")

_LACKING = ("prefix", "events", "events_max_len", "dedupe_window", "dedupe_max")
_NO_SCHEDULES = "a stream has no schedules: declare them on a delay queue, and relay that to the stream"


class _StreamFace(Face[T]):
    """What makes of a face of a delay queue one of a stream: its calls."""

    group: str
    _executor: Any
    _producer: StreamProducer

    def _join(self, group: str, options: QueueOptions) -> None:
        """Read in a group. Comes first: the calls that are made next are in its name."""
        self.group = check_name(group, "group")
        for option in _LACKING:
            if option in options:
                raise ConfigurationError(f"a stream queue has no option {option!r}")

    def _checked(self, name: str) -> str:
        return check_stream(name)

    def _make_calls(self) -> Calls:
        keys, made = StreamKeys.of(self.name), self.settings
        self._calls = StreamCalls(keys, self.group, made, lambda: self._executor.client_name, self._is_embedded)
        return cast("Calls", self._calls)  # flows, leases and messages ask for nothing that it lacks

    def _loading(self) -> list[Any]:
        return list(preload())

    def _opening(self) -> list[Any]:
        return self._calls.opening()

    def _send(self, messages: list[Any]) -> Operation[Sent]:
        (sent,) = yield from self._producer.send(messages)
        return sent

    def _schedule(self, name: str | None, options: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002 - a scheduler's
        raise ConfigurationError(_NO_SCHEDULES)

    @property
    def schedules(self) -> NoReturn:
        """A stream has none: a `ConfigurationError`."""
        raise ConfigurationError(_NO_SCHEDULES)

    @property
    def _inspector(self) -> StreamInspector:
        return StreamInspector(self._tools, self._calls)


class StreamQueue(_StreamFace[T], Consumer[T], Puller[T], BlockingFace[T]):
    """A task queue on one Redis stream and one consumer group: a message is delivered at once, until it is settled.

    Delivery is at least once; after `retries` redeliveries a message lies in the dead letter. Consumers in any language
    share the stream with XREADGROUP, XACK and XDEL. `stream` is the key as it is; side by side with it stand a few
    others on the same node of a cluster. All consumers of a `group` should have the same `lease`. The other options are
    those of `QueueOptions`, but for `prefix`, the event log and the dedupe window. Safe to use from several threads.
    """

    @overload
    def __init__(
        self: StreamQueue[Any],
        stream: str,
        *,
        group: str = "workers",
        payload_type: None = None,
        callback: Callable[[Message[Any]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: type[T],
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: type[T] | None = None,
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Open the queue on a stream; nothing is sent to Redis before the first use."""
        self._join(group, options)
        super().__init__(stream, payload_type, options)
        self._producer = StreamProducer(self._tools, self._codec)
        self._dead = StreamDeadLetter(self._tools, self._calls, self._perform)
        if callback is not None:
            self.callback(callback)

    def send(
        self,
        payload: T,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Sent:
        """Send a message, to be redelivered up to `retries` times; when this returns, it is in the stream.

        With an `id` the send is idempotent: while a message of this id lives, the same id is answered `exists`.
        """
        return self._perform(self._send([self._producer.outgoing(payload, 0, retries, id, headers)]))

    def send_many(self, messages: Iterable[T | NewMessage[T]], retries: int | None = None) -> SentMany:
        """Send many messages in few round trips; says which ids were new.

        Takes payloads, and `NewMessage`s for those with retries, headers or an id of their own. All are checked and
        encoded before the first is sent; then they go in slices, each stored as a whole or not at all.
        """
        return self._perform(
            self._producer.send_many(messages, delay=0, retries=retries, replace=False, run=None),
        )

    def counts(self) -> Counts:
        """Count the messages: `ready` in the stream, `active` with a consumer, `backoff` with none, and the dead.

        `ready` counts what the group has still before it, if whoever acknowledges deletes, too. `backoff` is what was
        nacked or released and waits to be delivered again.
        """
        return self._perform(self._inspector.counts())

    def get(self, id: str) -> MessageInfo | None:
        """Read a message, alive or dead, by its entry or by its id; None if there is none. Touches nothing.

        An entry, of the stream or else of the dead letter, is found at once. For an id, for which Redis has no index,
        the first 10,000 entries of the stream are looked through, and the last 10,000 of the dead letter.
        """
        return self._perform(self._inspector.get(id))

    def list(self, state: State | str, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Read a page of the messages in a state: `ready`, `active`, `backoff` or `dead`. Touches nothing.

        Give its cursor back for the next one. A page looks at `limit` entries (at most 1,000), or at fewer that are
        large, and may hold fewer messages. Payloads are cut to 4,096 bytes. Redis keeps no deadlines: they are reckoned
        with the `lease` of this queue, which should be that of its consumers.
        """
        return self._perform(self._inspector.page(state, limit=limit, cursor=cursor))

    def groups(self) -> Sequence[str]:
        """Read the names of the consumer groups of the stream, in order; a group is there once it has consumed."""
        return self._perform(self._inspector.groups())

    @property
    def dead(self) -> StreamDeadLetter:
        """The dead letter of this queue."""
        return self._dead


class AsyncStreamQueue(_StreamFace[T], AsyncConsumer[T], AsyncPuller[T], AsyncFace[T]):
    """A task queue on one Redis stream for asyncio; see `StreamQueue`. Callbacks are coroutine functions.

    Belongs to the event loop in which it is first used.
    """

    @overload
    def __init__(
        self: AsyncStreamQueue[Any],
        stream: str,
        *,
        group: str = "workers",
        payload_type: None = None,
        callback: Callable[[AsyncMessage[Any]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: type[T],
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: type[T] | None = None,
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Open the queue on a stream; nothing is sent to Redis before the first use."""
        self._join(group, options)
        super().__init__(stream, payload_type, options)
        self._producer = StreamProducer(self._tools, self._codec)
        self._dead = AsyncStreamDeadLetter(self._tools, self._calls, self._perform)
        if callback is not None:
            self.callback(callback)

    @twin(StreamQueue.send)
    async def send(
        self,
        payload: T,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Sent:
        return await self._perform(self._send([self._producer.outgoing(payload, 0, retries, id, headers)]))

    @twin(StreamQueue.send_many)
    async def send_many(self, messages: Iterable[T | NewMessage[T]], retries: int | None = None) -> SentMany:
        return await self._perform(
            self._producer.send_many(messages, delay=0, retries=retries, replace=False, run=None),
        )

    @twin(StreamQueue.counts)
    async def counts(self) -> Counts:
        return await self._perform(self._inspector.counts())

    @twin(StreamQueue.get)
    async def get(self, id: str) -> MessageInfo | None:
        return await self._perform(self._inspector.get(id))

    @twin(StreamQueue.list)
    async def list(self, state: State | str, *, limit: int = 100, cursor: str | None = None) -> Page:
        return await self._perform(self._inspector.page(state, limit=limit, cursor=cursor))

    @twin(StreamQueue.groups)
    async def groups(self) -> Sequence[str]:
        return await self._perform(self._inspector.groups())

    @property
    def dead(self) -> AsyncStreamDeadLetter:
        """The dead letter of this queue."""
        return self._dead
