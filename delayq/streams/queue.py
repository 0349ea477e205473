"""A task queue on a Redis stream, with the consumers and leases of a delay queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from delayq._parity import awaited
from delayq.broker.context import EngineContext
from delayq.broker.engine import STREAMS, Feature
from delayq.broker.keys import check_name
from delayq.broker.transport.operation import Operation
from delayq.options import QueueOptions
from delayq.privacy.encrypted import QueueCipher
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import ANY_PAYLOAD, M, QueueBase, SyncBase, T
from delayq.queue.inspecting.counts import Counts
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.queue.sending.group_commit import warn_in_event_loop
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import Sent, SentMany
from delayq.streams.calls import StreamCalls
from delayq.streams.dead_letter import AsyncStreamDeadLetter, StreamDeadLetter
from delayq.streams.inspector import StreamInspector
from delayq.streams.keys import StreamKeys
from delayq.streams.replies import payload_decoder
from delayq.values.states import State
from delayq.worker.delivery.message import AsyncMessage, Message

if TYPE_CHECKING:
    from typing_extensions import TypeForm


class StreamBase(QueueBase[T, M]):
    """Base class of both stream queues: their calls, and errors for what a stream does not support."""

    _scripts = "streams"
    group: str

    def _join(self, group: str, options: QueueOptions) -> None:
        """Set the consumer group. Must come first: the calls that are built next use it."""
        self.group = check_name(group, "group")
        STREAMS.check_options(options)

    def _make_context(self) -> EngineContext:
        keys, settings = StreamKeys.of(self.name), self.settings
        self._calls = StreamCalls(keys, self.group, settings, lambda: self.executor.consumer_id, self.is_embedded)
        decode = payload_decoder(self.codec.decode, encrypted=isinstance(self.codec, QueueCipher))
        context = EngineContext(self._calls, settings, decode, self.name)
        self._inspector = StreamInspector(context, self._calls)
        return context

    def _opening(self) -> list[Any]:
        return self._calls.opening()

    def _send(self, messages: list[Any]) -> Operation[Sent]:
        (sent,) = yield from self.producer.send(messages)
        return sent

    @property
    def schedules(self) -> NoReturn:
        """Raise `ConfigurationError`: a stream has no schedules."""
        self.cron()

    def cron(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `ConfigurationError`: a stream has no schedules."""
        raise STREAMS.refusal(Feature.SCHEDULES)

    every = cron
    rrule = cron

    def task(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `ConfigurationError`: messages of a stream have no names, by which a function is chosen."""
        raise STREAMS.refusal(Feature.NAMES)

    on = task


class StreamQueue(StreamBase[T, Message[T]], SyncBase[T]):
    """A task queue on one Redis stream and one consumer group: messages are delivered at once, at least once.

    After `retries` redeliveries a message goes to the dead letter. Consumers in any language can share the stream with
    XREADGROUP, XACK and XDEL. `stream` is the key without a prefix; a few companion keys are on the same node of a
    cluster. All consumers of a `group` should have the same `lease`. The other options are those of `QueueOptions`,
    except `prefix`, the event log and the dedupe window. Safe to use from several threads.
    """

    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: TypeForm[T] = ANY_PAYLOAD,
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Create a queue on a stream; it connects to Redis on first use."""
        self._join(group, options)
        super().__init__(stream, payload_type, callback, options)
        self._dead = StreamDeadLetter(self.context, self._calls, self.executor)

    # Sending

    def send(
        self, payload: T, retries: int | None = None, *, id: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Sent:
        """Send a message, which is redelivered up to `retries` times; on return it is in the stream.

        With an `id` the send is idempotent: while a message with this id exists, another send of it returns `exists`.
        """
        warn_in_event_loop(blocks=self.executor.blocks)
        return self._perform(self._send([self.producer.outgoing(payload, 0, retries, id, headers)]))

    def send_many(self, messages: Iterable[T | NewMessage[T]], retries: int | None = None) -> SentMany:
        """Send many messages in few round trips; returns which ids were new.

        Takes payloads, and `NewMessage`s for messages with their own retries, headers or id. All are checked and
        encoded before the first is sent. They are sent in batches, each stored as a whole or not at all.
        """
        warn_in_event_loop(blocks=self.executor.blocks)
        return self._perform(self.producer.send_many(messages, delay=0, retries=retries, replace=False, run=None))

    # Inspecting

    def counts(self) -> Counts:
        """Count the messages: `ready` in the stream, `active` with a consumer, `backoff` and `dead`.

        `ready` counts the entries that the group has not read yet, provided that all clients delete what they
        acknowledge. `backoff` counts messages that were nacked or released and wait for their next delivery.
        """
        return self._perform(self._inspector.counts())

    def get(self, id: str) -> MessageInfo | None:
        """Read a message of the stream or the dead letter by its entry or by its id; None if there is none. Read-only.

        An entry is found at once. Redis has no index of ids: for an id the first 10,000 entries of the stream are
        searched, and the last 10,000 of the dead letter.
        """
        return self._perform(self._inspector.get(id))

    def list(self, state: State | str, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Read a page of the messages in a state: `ready`, `active`, `backoff` or `dead`. Read-only.

        Pass its cursor to read the next page. A page reads `limit` entries (at most 1,000), or fewer if they are large,
        and may contain fewer messages. Payloads are cut to 4,096 bytes. Redis stores no deadlines: they are calculated
        with the `lease` of this queue, which should be that of its consumers.
        """
        return self._perform(self._inspector.page(state, limit=limit, cursor=cursor))

    def groups(self) -> Sequence[str]:
        """Read the names of the stream's consumer groups, sorted; a group exists after its first consumer has run."""
        return self._perform(self._inspector.groups())

    @property
    def dead(self) -> StreamDeadLetter:
        """The dead letter of this queue."""
        return self._dead


class AsyncStreamQueue(StreamBase[T, AsyncMessage[T]], AsyncBase[T]):
    """A task queue on one Redis stream for asyncio; see `StreamQueue`. Callbacks are coroutine functions, or may block.

    A queue belongs to the event loop that uses it, until one of them is closed; another event loop is refused.
    """

    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: TypeForm[T] = ANY_PAYLOAD,
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Create a queue on a stream; it connects to Redis on first use."""
        self._join(group, options)
        super().__init__(stream, payload_type, callback, options)
        self._dead = AsyncStreamDeadLetter(self.context, self._calls, self.executor)

    # Sending

    send = awaited(StreamQueue[T].send)
    send_many = awaited(StreamQueue[T].send_many)

    # Inspecting

    counts = awaited(StreamQueue.counts)
    get = awaited(StreamQueue.get)
    list = awaited(StreamQueue.list)
    groups = awaited(StreamQueue.groups)

    @property
    def dead(self) -> AsyncStreamDeadLetter:
        """The dead letter of this queue."""
        return self._dead
