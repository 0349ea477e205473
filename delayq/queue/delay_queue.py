"""The delay queue: each public method runs one operation, which the asyncio queue shares."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Unpack, overload

from delayq.broker.transport.operation import single
from delayq.errors import ConfigurationError
from delayq.options import QueueOptions
from delayq.queue.base import ANY_PAYLOAD, R, SyncBase, T
from delayq.queue.control.pausing import Pause, pause, resume
from delayq.queue.dead_letter import DeadLetter
from delayq.queue.delay_base import DelayBase
from delayq.queue.inspecting.counts import Counts, Stats
from delayq.queue.inspecting.event_log import EventReader, MessageEvent
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.queue.inspecting.workers import WorkerInfo, list_workers
from delayq.queue.repairing.repair import examine
from delayq.queue.repairing.repair_report import Checkup
from delayq.queue.sending.collecting import CollectOptions, collecting
from delayq.queue.sending.due_times import due_text
from delayq.queue.sending.group_commit import GroupCommit, warn_in_event_loop
from delayq.queue.sending.message_options import NewMessage, SendOptions, replacing
from delayq.queue.sending.pipelined import send_into
from delayq.queue.sending.producer import Sent, SentMany
from delayq.queue.sweeps.bulk_runs import RunInfo, end_run, forget_run, list_runs, refusals_of
from delayq.queue.sweeps.cancellation import CancelOutcome, KillOutcome, RescheduleOutcome, cancel, kill, reschedule
from delayq.queue.tasks.handlers import MISSING
from delayq.values.checks import check_bool
from delayq.values.states import State
from delayq.values.times import Duration, to_millis
from delayq.worker.delivery.message import Message

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from delayq.queue.control.limits import Limits
    from delayq.queue.inspecting.forecast import Forecast
    from delayq.queue.inspecting.forecast_periods import Unit
    from delayq.queue.inspecting.history import QueueHistory
    from delayq.queue.inspecting.memory_usage import MemoryUsage
    from delayq.queue.inspecting.why.looked import Why
    from delayq.queue.results.result_waits import BlockingResultWaits
    from delayq.queue.scheduling.schedules import Schedules
    from delayq.queue.sweeps.editing import EditOptions, EditOutcome
    from delayq.queue.sweeps.forgetting import Forgotten
    from delayq.queue.sweeps.handler_check import HandlerCheck
    from delayq.queue.sweeps.rekeying import Rekeyed
    from delayq.queue.sweeps.search import SearchPage
    from delayq.queue.sweeps.selection import Selection
    from delayq.queue.tasks.task_options import TaskOptions
    from delayq.queue.tasks.tasks import Task

P = ParamSpec("P")


class DelayQueue(DelayBase[T, Message[T]], SyncBase[T]):
    """A reliable delay queue: it delivers a message when it is due, and again until it is settled.

    Delivery is at least once, and never before the due time. After `retries` redeliveries a message moves to the dead
    letter, with its payload and the reason. `payload_type` makes the payloads typed. The options are those of
    `QueueOptions`. Safe to use from several threads.
    """

    def __init__(
        self,
        name: str,
        *,
        payload_type: TypeForm[T] = ANY_PAYLOAD,
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Make a client for the queue `name`. It sends nothing to Redis before the first use."""
        super().__init__(name, payload_type, callback, options)
        self.sends = GroupCommit(self.producer, self.executor)
        self._inspector = Inspector(self.context)
        self._dead = DeadLetter(self.context, self.executor, self.codec.encode)

    # Tasks

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, function: Any = MISSING, /, **options: Unpack[TaskOptions]) -> Any:
        """Register a function that messages call with their arguments, as a decorator; returns its `Task`.

        After `@queue.task`, `remind.send(42)` sends a message with the name `remind`, and a worker of any process that
        has registered this task calls `remind(42)`. `@queue.task(name="billing.remind", retries=5)` takes the options
        of `TaskOptions`. What the function returns counts as success, also `False`; an exception uses one retry, and
        it may raise `Retry`, `Snooze`, `Reject`, `Discard` and `StopWorker`. Its message is `current_message()`. A
        message whose arguments the function does not take goes the way of one whose name is unknown: see
        `unknown_for`. The queue needs the json codec without a `payload_type`, or a codec of your own.
        """
        from delayq.queue.tasks.tasks import Task  # not every program has tasks

        return self._register_task(Task, function, options)

    # Sending

    def send(
        self,
        payload: T,
        delay: Duration | None = None,
        at: datetime | None = None,
        retries: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Sent:
        """Send a message that is due after `delay`, or `at` an aware datetime, or at once; see `send_delay_msg`."""
        if at is None:
            return self.send_delay_msg(payload, 0 if delay is None else delay, retries, **options)
        if delay is not None:
            raise ConfigurationError("give delay or at, but not both")
        return self.send_schedule_msg(payload, at, retries, **options)

    def send_delay_msg(
        self,
        payload: T,
        delay: Duration = 0,
        retries: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Sent:
        """Send a message that is due after `delay` and is redelivered up to `retries` times.

        When this returns, the message is stored. The other options are those of `SendOptions`: with an `id` the
        send is idempotent, and with `unique="payload"`, name and payload make the id. Of several sends
        with one id the first wins. With `replace` the last one does, and with `debounce` it waits for the others to
        end. What a callback returns is kept for `retention`; see `result`. On `OutcomeUnknown`, send again with the
        same id, which the error has in `ids`. Concurrent sends from several threads share round trips.
        """
        replace = replacing(options, delay) if options else False
        due, id, headers = to_millis(delay, "delay"), options.get("id"), options.get("headers")
        outgoing = self.producer.outgoing(payload, due, retries, id, headers, options=options, replace=replace)
        return self.sends.send(outgoing, replace=replace)

    def send_schedule_msg(
        self,
        payload: T,
        at: datetime,
        retries: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Sent:
        """Send a message that is due `at` an aware datetime, or at once if that has passed; see `send_delay_msg`."""
        replace = replacing(options, at) if options else False
        due, id, headers = due_text(None, at), options.get("id"), options.get("headers")
        outgoing = self.producer.outgoing(payload, due, retries, id, headers, options=options, replace=replace)
        return self.sends.send(outgoing, replace=replace)

    def send_many(
        self,
        messages: Iterable[T | NewMessage[T]],
        delay: Duration = 0,
        retries: int | None = None,
        *,
        replace: bool | Literal["after"] = False,
        run: str | None = None,
        **options: Unpack[CollectOptions],
    ) -> SentMany:
        """Send many messages in few round trips; returns which ids were new.

        Takes payloads, and `NewMessage` objects for messages with their own time, retries or id. All are checked and
        encoded before the first is sent. They are sent in batches, and each batch is stored as a whole or not at all.
        With the name of a `run`, Redis adds up what became of the messages (see `runs`). With `collect`, those with the
        same id become the payloads of one message.
        """
        warn_in_event_loop(blocks=self.executor.blocks)
        how = collecting(options, replace=replace, run=run, delay=delay) if options else replace
        return self._perform(self.producer.send_many(messages, delay=delay, retries=retries, replace=how, run=run))

    def send_into(
        self,
        pipeline: Any,
        payload: T,
        delay: Duration | None = None,
        at: datetime | None = None,
        retries: int | None = None,
        **options: Unpack[SendOptions],
    ) -> str:
        """Put a send into a transaction of redis-py, `client.pipeline()` of the queue's Redis; returns the id.

        The message is stored if, and when, the caller executes the pipeline. In its replies, that of the send begins
        with 1 for a new message, 2 for one that is replaced and 6 for one that waits `after` another; else nothing was
        stored. In a cluster the keys must share the slot of the queue: have
        `{NAME}` in them. Checks the message as `send` does; takes no `debounce`. The user needs the right to `EVAL`.
        """
        due: Duration | datetime = at or delay or 0
        replace = replacing(options, due) if options else False
        when = due_text(0 if delay is None and at is None else delay, at)
        id, headers = options.get("id"), options.get("headers")
        outgoing = self.producer.outgoing(payload, when, retries, id, headers, options=options, replace=replace)
        is_open = self.executor.opening is None
        operation = send_into(self.context, pipeline, outgoing, replace=replace, is_open=is_open)
        return self._perform(operation, writes=True)

    def cancel(self, id: str, *, running: bool = False) -> CancelOutcome:
        """Cancel a message that is not being processed, and what waits to follow it.

        After `cancelled` it is never delivered again. `successor` says that only what waited is cancelled, since the
        message is being processed. A message that a consumer has claimed but not started is taken
        back from it, which takes up to two seconds.

        With `running`, a message that is being processed is asked to stop, and the outcome is `stopping`: within a tick
        `message.cancel_requested` is true, and a coroutine function is cancelled. If it does not succeed after all, the
        message is cancelled when its callback ends or its lease runs out, and never delivered again.
        """
        return self._perform(cancel(self.context, id, running=running))

    def kill(self, id: str) -> KillOutcome:
        """Move a message that is not being processed to the dead letter, with the reason `killed`.

        It is never delivered unless it is redriven; `dead.redrive` sends it again. What waits to follow it takes its
        place. A message that a consumer has claimed but not started is taken back from it, which takes up to two
        seconds. A message that is being processed stays: `running`.
        """
        return self._perform(kill(self.context, id))

    def edit(
        self,
        id: str,
        *,
        payload: T = MISSING,
        if_unchanged: MessageInfo | None = None,
        **changes: Unpack[EditOptions],
    ) -> EditOutcome:
        """Change the payload of a message that waits, and what else `EditOptions` has; all else stays.

        It keeps its id, due time, attempts and retries, and its place unless its rank changes. After `edited`, what it
        had before is never delivered. A message that a consumer has claimed but not started is taken back from it,
        which takes up to two seconds. One that is being processed stays: `running`. With `if_unchanged`, which `get`
        has returned, one that was delivered, edited, rescheduled or sent again since stays, too: `changed`.

        Atomic. Raises `ConfigurationError` if nothing is to change, for wrong options and for the payload of a message
        that collects payloads; `PayloadError` as a send does; `QueueFullError` if Redis has no memory for it.
        """
        from delayq.queue.sweeps.editing import check_edit, edit  # few programs edit

        new = () if payload is MISSING else (payload,)
        change = check_edit(new, changes, self.producer.encode, self.settings.max_payload)
        return self._perform(edit(self.context, id, change, if_unchanged), writes=True)

    def forget(
        self, *ids: str, id_prefix: str | None = None, name: str | None = None, dry_run: bool = False
    ) -> Forgotten:
        """Erase what is kept of messages that have ended: results, dead letters, reserved ids, and events of the log.

        Give ids, or the beginning of ids, or a name, by which kept results and dead messages are found. A message that
        is alive, and whatever is kept of its id, stays and is counted: cancel it first. An entry of the event log
        cannot be changed: it is deleted whole, with its events of other messages, which are counted. With `dry_run`
        counts the same and changes nothing.

        Works in short calls beside running workers, and on a full Redis. Repeat a call that was cut off: it does the
        rest. What may remain elsewhere for a while is in `delayq docs privacy`.
        """
        from delayq.queue.sweeps.forgetting import check_forgotten, forget  # few programs erase

        wanted = check_forgotten(ids, id_prefix, name)
        counts_only = check_bool(dry_run, "dry_run")
        return self._perform(forget(self.context, wanted, dry_run=counts_only), writes=not counts_only)

    def rekey(self) -> Rekeyed:
        """Encrypt what waits, is dead or follows, and schedules, with the first key of `codec=Encrypted(keys)`.

        Works page by page beside running workers, and replaces each payload only if it is still what was read. A
        message that is being processed or was changed meanwhile is left as it is, so repeat the call until it leaves
        none. Safe to interrupt and to repeat: a payload is readable at any moment. Results are not encrypted again.
        """
        from delayq.queue.sweeps.rekeying import rekey  # few programs encrypt

        return self._perform(rekey(self.context, self.codec), writes=True)

    def reschedule(self, id: str, delay: Duration | None = None, *, at: datetime | None = None) -> RescheduleOutcome:
        """Set a new due time for a message that is not being processed; its attempts and retries do not change."""
        return self._perform(reschedule(self.context, id, delay, at))

    def select(
        self,
        state: State | str | None = None,
        *,
        name: str | None = None,
        id_prefix: str | None = None,
        due_from: datetime | None = None,
        due_to: datetime | None = None,
    ) -> Selection:
        """Select waiting messages to count, cancel, kill or reschedule all of them: `select(name="mail").cancel()`.

        They must have the name, ids with the prefix, and due times from `due_from` on and before `due_to`; give one of
        these at least, or a state. Without a state, all that wait are meant: pending, ready, throttled, backoff and
        retry. Of `"active"`, a `cancel(running=True)` stops what runs. Nothing is read before a method is called.
        """
        from delayq.queue.sweeps.selection import Selection, check_filter  # few programs change many messages at once

        return Selection(self.context, self.executor, check_filter(state, name, id_prefix, due_from, due_to))

    # Results

    def result(self, id: str, *, timeout: Duration | None = None) -> Any:
        """Return what the callback of a message with retention has returned; waits until it has, at most `timeout`.

        Without a timeout it waits as long as it takes; 0 only looks. Waiting costs no polling: all waits of a queue
        object share one blocking command. Raises `MessageFailedError` if the message is dead or was rejected,
        discarded, cancelled or purged; `NoResultError` if it has no retention, is unknown, its result could not be
        kept, or one without retention has replaced it; `ResultTimeoutError`, a `TimeoutError`, if it has not ended in
        time. With `replace="after"` it waits for the message that follows, too.
        """
        return self._results.wait(id, timeout)

    @cached_property
    def _results(self) -> BlockingResultWaits:
        from delayq.queue.results.result_waits import BlockingResultWaits  # few programs wait

        return BlockingResultWaits(self.context, self.executor)

    # Inspecting

    def get(self, id: str) -> MessageInfo | None:
        """Read a message, also one that is dead or completed; None if the id is unknown. Changes nothing."""
        return self._perform(self._inspector.get(id))

    def why(self, id: str | None = None) -> Why:
        """Say why a message waits, or without an id why the queue gives out nothing, or not everything.

        Each reason is a sentence, with its facts: pauses, limits, breakers, leases, retries, missing workers. Reads
        what is stored, in one or two round trips; a page of 500 limits or consumers more is one more. Changes nothing.
        """
        from delayq.queue.inspecting.why.why import why  # few programs ask

        return self._perform(why(self.context, id))

    def counts(self) -> Counts:
        """Count the messages in each state, in one snapshot."""
        return self._perform(self._inspector.counts())

    def stats(self) -> Stats:
        """Read the counts, the next and the oldest due time, and totals since the queue was created."""
        return self._perform(self._inspector.stats())

    def memory_usage(self, samples: int = 5) -> MemoryUsage:
        """Ask the server how many bytes each structure of the queue takes, of so many values of each; 0 for all.

        Raises `ServerError` on an embedded server, which does not tell.
        """
        from delayq.queue.inspecting.memory_usage import memory_usage  # few programs ask

        return self._perform(memory_usage(self.context, samples))

    def workers(self) -> builtins.list[WorkerInfo]:
        """Read which consumers run, where, and on what messages, as each tells every 10 s; the longest-running first.

        One that was killed is `silent` after 30 s, and listed for an hour. One that has stopped is not listed, nor is
        who only pulls messages with `lease`. Changes nothing.
        """
        return self._perform(list_workers(self.context))

    def history(
        self, days: int = 10, buckets: Literal["hour", "day"] | None = None, *, tz: str | tzinfo | None = "UTC"
    ) -> QueueHistory:
        """Read what consumers have done in each hour or day of the last `days`, up to 90, with today.

        Each adds what it has counted every 10 s: one that is killed loses at most its last 10 s. What a relay has moved
        counts as acked, without lateness; what is pulled with `lease` is not counted. `buckets` is `"hour"` or `"day"`:
        by default hours up to two days, else days. Days are those of the time zone `tz`, or with None of this machine;
        an hour belongs to the day in which it begins.
        Changes nothing. Raises `ConfigurationError` for other days or buckets.
        """
        from delayq.queue.inspecting.history import read_history  # few programs ask

        return self._perform(read_history(self.context, days, buckets, tz))

    def list(
        self,
        state: State | str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        due_from: datetime | None = None,
        due_to: datetime | None = None,
    ) -> Page:
        """Read a page of the messages in a state; pass its cursor for the next page. Changes nothing.

        A page reads `limit` entries (at most 1,000) and may contain fewer messages. The queue changes between pages:
        a message that changes its state may appear twice or not at all. `due_from` and `due_to` select pending messages
        that are due at the first or later, and before the second; the others are not read.
        """
        return self._perform(self._inspector.page(state, limit=limit, cursor=cursor, due_from=due_from, due_to=due_to))

    def search(
        self,
        text: str,
        *,
        where: Sequence[str] | str = ("payload", "error", "headers"),
        state: Sequence[State | str] | State | str | None = None,
        limit: int = 100,
        max_searched: int = 100_000,
        cursor: str | None = None,
    ) -> SearchPage:
        """Find messages whose payload, error or headers contain a text; pass the cursor of the page to go on.

        Case matters. The reason of a death counts as an error. Without a state, all messages are searched, also the
        dead letter. Reads one after the other, in short calls, until `limit` (at most 1,000) have been found, about
        `max_searched` or 64 MiB of payloads have been read, or all. A match has of its payload what `list` returns.
        There is no index: a search costs as much as a `list` of all messages with their payloads. The queue changes
        meanwhile, as with `list`. Changes nothing.
        """
        from delayq.queue.sweeps.search import search  # few programs search

        page = search(
            self._inspector, text, where=where, states=state, limit=limit, max_searched=max_searched, cursor=cursor
        )
        return self._perform(page)

    def forecast(
        self,
        until: Duration | datetime = "7d",
        buckets: Unit | None = None,
        *,
        tz: str | tzinfo | None = "UTC",
    ) -> Forecast:
        """Count what fires in each minute, hour or day until a time, a duration from now or an aware datetime.

        Counts pending messages, redeliveries, and the occurrences of schedules, which are no messages yet. `buckets` is
        `"minute"`, `"hour"` or `"day"`: by default minutes up to three hours, hours up to three days, else days. Hours
        and days are those of the time zone `tz`, or with None of this machine. Changes nothing, and counts messages
        without reading them, so their number hardly matters. Not a snapshot: what moves meanwhile may be counted twice
        or not at all.

        Raises `ConfigurationError` if `until` is in the past, or for more than 10,000 buckets.
        """
        from delayq.queue.inspecting.forecast import forecast  # few programs ask

        return self._perform(forecast(self.context, until, buckets, tz))

    def check(self) -> HandlerCheck:
        """Check that this program could process all messages that wait or are dead; runs none, and changes nothing.

        Each payload is decoded, and the arguments of a task are bound to its parameters. Reads every message, in short
        calls; the queue may change meanwhile. Raises `NoCallbackError` if the program has registered no function.
        """
        from delayq.queue.sweeps.handler_check import check_handlers  # few programs check themselves

        self.handlers.find()
        return self._perform(check_handlers(self.context, self.handlers.problem))

    @property
    def dead(self) -> DeadLetter:
        """The dead letter of this queue."""
        return self._dead

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules of this queue."""
        from delayq.queue.scheduling.schedules import Schedules  # takes its time, and most queues have no schedules

        return Schedules(self.context, self.producer, self.handlers, self.executor)

    @cached_property
    def limits(self) -> Limits:
        """The limits of this queue and of its names."""
        from delayq.queue.control.limits import Limits  # most queues have none

        return Limits(self.context, self.executor)

    # The event log

    def events(self, after: int | str = 0, *, follow: bool = False) -> Iterator[MessageEvent]:
        """Iterate over the event log, oldest first, starting after the offset `after`, or at `"now"`.

        Stops at the end of the log; with `follow` it waits for new events until you leave the loop, also while Redis
        does not answer. After a failover that has undone events, the last seconds may be repeated. Events are
        recorded only while the queue's event log is on (`events=True`), and at most `events_max_len` entries are kept.
        If entries were trimmed before they were read, delayq logs a warning.
        """
        return EventReader(self.context, self.executor, after, follow=follow).iterate()

    # Runs of bulk sends

    def runs(self) -> builtins.list[RunInfo]:
        """Return the runs of bulk sends, the latest first; a queue keeps the last thousand."""
        return self._perform(list_runs(self.context))

    def end_run(
        self,
        run: str,
        *,
        aborted: bool = False,
        refusals: Iterable[tuple[str, str]] = (),
        refused: int | None = None,
        epoch: int = -1,
    ) -> RunInfo:
        """Mark a run as committed or aborted, and record what was refused before it was sent, as (id, reason).

        Changes no messages: what an aborted run has sent stays in the queue. Give the number as `refused` if more were
        refused than `refusals` lists. A run may have several epochs, with rising numbers; each counts once.
        """
        return self._perform(
            end_run(self.context, run, aborted=aborted, refusals=refusals, refused=refused, epoch=epoch)
        )

    def forget_run(self, run: str) -> bool:
        """Delete a run and its refusals from the ledger; returns whether it was there. Messages are not changed."""
        return self._perform(forget_run(self.context, run))

    def refusals(self, run: str) -> builtins.list[tuple[str, str]]:
        """Return the messages that a run refused, as (id, reason); at most a thousand."""
        return self._perform(refusals_of(self.context, run))

    # Administration

    def pause(self, until: Duration | datetime | None = None, *, name: str | None = None, reason: str = "") -> Pause:
        """Start no more callbacks and give no leases, in any process, until `resume`, or by itself at `until`.

        `until` is a duration from now or an aware datetime, by the server's clock. Callbacks that run end and settle as
        usual; within a tick, consumers return what they have claimed and not started. Sends, schedules, cancels and
        expiring leases go on. In a pause, changes its end and reason (a line of at most 200 characters).

        With a `name`, only messages with this name do not start: they wait as `throttled`, others overtake them, and
        what is claimed already still runs.
        """
        return self._perform(pause(self.context, until, reason, name))

    def resume(self, *, name: str | None = None, spread: Duration | None = None) -> bool:
        """End a pause: idle consumers go on at once, others within a tick. Returns whether there was one.

        Also ends the pause of a `Breaker` that has tripped, without a trial, and an earlier `spread`. With `spread`,
        what waits now starts evenly over this time. With a `name`, ends those of this name, else those of the queue.
        """
        return self._perform(resume(self.context, name, spread))

    def purge(self) -> int:
        """Delete all messages, also those being processed and those in the cold tier; returns how many.

        Keeps the dead letter, results and schedules.
        """
        return self._perform(single(self.context.calls.purge()))

    def remove(self) -> bool:
        """Remove an empty queue: its keys in Redis, and its name in `delayq queues`; returns whether it was listed.

        Its settings, limits, totals, results, history, run ledger and event log go with it. Raises `QueueInUseError` if
        it has messages, dead or cold ones, schedules, or consumers that are running: check and deletion are one step. A
        consumer that was killed counts as running for 30 s. First stop the programs that send to it: a later send makes
        the queue anew, without its settings.
        """
        return self._perform(self._removing(self.open))

    def examine(self, *, deep: bool = False) -> Checkup:
        """Check this queue and its server for defects; changes nothing.

        Checks all messages that have become due. With `deep` it checks every message and the dead letter, which takes
        about twenty seconds of server time per million messages, in short calls. Consumers and producers can go on.
        """
        return self._perform(examine(self.context, self.name, deep=deep, fix=False))

    def repair(self, *, deep: bool = False) -> Checkup:
        """Check the queue as `examine` does, and repair what can be repaired; returns what was found.

        No message that has a payload is lost. A message that is in no state is delivered now, or at the due time that
        its record has; if a consumer is processing it, it is delivered twice. An id without a payload is removed. Safe
        while consumers and producers run, and safe to repeat: each message is checked and repaired atomically.
        """
        return self._perform(examine(self.context, self.name, deep=deep, fix=True))
