"""`delayq worker`: processing the messages of queues, in one process or several."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import Exit, to_command_error
from delayq.cli.support.groups import GroupedCommand
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import DURATION, PATTERN, Checked, engine_option, group_option
from delayq.cli.support.session import Session
from delayq.cli.worker.deliver import SINK_GROUPS, check_options, deliver_options, make_adapter, open_queue
from delayq.cli.worker.worker_endpoint import HttpOptions
from delayq.errors import ConfigurationError, StoppedByCallbackError, short_repr
from delayq.safe_log import SafeLog
from delayq.values.text import pluralize
from delayq.worker.delivery.attempt_log import log_messages_at

if TYPE_CHECKING:
    from delayq.cli.support.app_loader import AnyQueue
    from delayq.cli.worker.service_manager import LoopWatch, ServiceManager
    from delayq.cli.worker.supervisor import Channel
    from delayq.cli.worker.worker_pool import PooledQueues

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3}
_SIZE_TEXT = re.compile(r"(\d{1,12})\s?([KMG]?)(?:iB|B)?", re.IGNORECASE)
_SPREAD = 0.1
"""By which part of its messages the end of a process may be late, so that not all of them end at the same time."""


HUNG_AFTER = 2.0
"""Seconds in which a callback may end after its timeout: one that looks at `message.lease_lost` does."""


class ProcessLimits(NamedTuple):
    """How much one process may do and take; 0 for no limit."""

    messages: int
    memory: int
    """Bytes of resident memory."""
    kill_hung: bool = False
    """Whether it ends for a callback that hangs."""

    def spread(self) -> ProcessLimits:
        """Return these limits with up to a tenth more messages, drawn anew for each process."""
        return self._replace(messages=self.messages + random.randint(0, int(self.messages * _SPREAD)))  # noqa: S311

    def reached(self, messages: int, hung_for: float) -> str | None:
        """Return which limit a process has reached that has claimed so many messages, in words; None for none.

        A callback has hung for so many seconds beyond its timeout, less than none if none has.
        """
        if self.kill_hung and hung_for >= HUNG_AFTER:
            return "a callback that hangs"
        if 0 < self.messages <= messages:
            return pluralize(messages, "message")
        if self.memory and (taken := resident_bytes()) > self.memory:
            return f"{size_text(taken)} of memory"
        return None

    def check_start(self) -> None:
        """Raise `ConfigurationError` if this process has more memory than it may, before its first message."""
        if self.memory and (taken := resident_bytes()) > self.memory:
            needed = f"the program takes {size_text(taken)} before its first message"
            raise ConfigurationError(f"--max-memory {size_text(self.memory)} is too little: {needed}")


def resident_bytes() -> int:
    """Return the resident memory of this process: what it has now on Linux, the most it has had elsewhere."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def read_size(value: object, name: str) -> int:
    """Return the bytes of a text such as `500M` or `2GiB`; a plain number is bytes."""
    found = _SIZE_TEXT.fullmatch(str(value).strip())
    if found is None or int(found[1]) == 0:
        raise ConfigurationError(f"{name} must be a size above 0, such as 500M or 2G, not {short_repr(value)}")
    return int(found[1]) << 10 * _UNITS[found[2].upper()]


def size_text(size: int) -> str:
    """Return a size in MiB, rounded up."""
    return f"{-(-size >> 20)} MiB"


FIRST = 1
_NOT_PASSED_ON = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU}
_OF_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}


def leave_first_process() -> None:
    """In the first process, go on in a child: this one passes signals on, reaps, and ends with the child's exit code.

    Call it before the first thread starts: a fork has the calling thread alone.
    """
    if os.getpid() == FIRST:
        go_on_in_child()


def go_on_in_child() -> None:
    """Fork, and return in the child alone."""
    passed_on = {*map(int, signal.valid_signals() - _NOT_PASSED_ON - _OF_FAULTS)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on | {signal.SIGCHLD})
    child = os.fork()
    with suppress(OSError):  # both do it, so that it is done before either goes on
        # Ctrl-C reaches the first process, which passes it on: from the terminal as well, it would count twice.
        os.setpgid(child, child)
    if child:
        os._exit(_watch_over(child, passed_on))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch_over(child: int, passed_on: set[int]) -> int:
    """Pass signals on and reap until the child has ended; return the exit code for it, as shells have it."""
    while True:
        number = signal.sigwait(passed_on | {signal.SIGCHLD})
        if number == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        else:
            with suppress(ProcessLookupError):
                os.kill(child, number)


def _reap(child: int) -> int | None:
    """Wait for all that has ended; return the status of the child if that is among it."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


log = SafeLog("delayq.worker")


_GROUPS = {
    "Many queues, one pool": ["--queues", "--strict", "--limit"],
    "Replacing processes in time": ["--max-messages", "--max-memory", "--kill-hung"],
    "Metrics and probes": ["--http-port", "--http-host", "--otel"],
    "Logging": ["--log-level", "--log-json", "--log-messages"],
    "Delivery without code": ["--queue", "--deliver", "--deliver-timeout", "--retry-delay", "--engine", "--group"],
    **SINK_GROUPS,
    "With --deliver command": ["--command-env"],
}
"""The options of the help by group; the others are those of every worker."""
_NOT_EXPORTED = ("processes", "reload", "supervised", "http_port", "http_host", "http_socket", "beat")
"""Options of the parent alone."""


@click.command(cls=GroupedCommand, groups=_GROUPS)
@click.argument("words", nargs=-1, metavar="[MODULE[:QUEUE][=WEIGHT]]…")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Callbacks at a time, of each queue in each process; with weights, of all queues together.",
)
@click.option(
    "--queues",
    type=PATTERN,
    metavar="PATTERN",
    help="Serve every queue that matches, such as 'tenant-*', like the one QUEUE given.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: start anew when a Python file below the current folder changes, and log each message.",
)
@click.option("--strict", is_flag=True, help="One pool for all queues, by the order given: the first has precedence.")
@click.option(
    "--limit", multiple=True, metavar="QUEUE=N", help="One pool, and N callbacks of a queue at a time at most."
)
@click.option("--processes", type=click.IntRange(1, 512), default=1, metavar="N", help="Worker processes.")
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after so many messages, and up to a tenth more.",
)
@click.option(
    "--max-memory",
    type=Checked("size", read_size),
    help="Replace a process that takes more memory than this, such as 500M.",
)
@click.option("--kill-hung", is_flag=True, help="Replace a process whose callback does not end at its timeout.")
@click.option("--grace", type=DURATION, help="How long a stop waits for running callbacks.")
@click.option("--burst", is_flag=True, help="Return when nothing is due any more.")
@click.option("--http-port", type=click.IntRange(0, 65535), metavar="N", help="Serve metrics and probes there.")
@click.option("--http-host", default="127.0.0.1", show_default=True, help="Listen on this address; 0.0.0.0 for all.")
@click.option("--otel", is_flag=True, help="Record traces and metrics with the OpenTelemetry SDK of the program.")
@log_options
@click.option("--log-messages", is_flag=True, help="Log a line at INFO for each message that is done.")
@deliver_options
@engine_option(Feature.CALLBACKS)
@group_option
@click.option("--http-socket", hidden=True, allow_from_autoenv=False, type=click.Path(path_type=Path))
@click.option("--beat", hidden=True, allow_from_autoenv=False, type=float, metavar="SECONDS")
@click.option("--supervised", hidden=True, allow_from_autoenv=False, type=(int, int), metavar="NUMBER CHANNEL")
@click.pass_context
def worker(
    ctx: click.Context, /, words: tuple[str, ...], *, processes: int, supervised: tuple[int, int] | None, **options: Any
) -> int:
    """Process the messages of one or more queues: of every queue in MODULE, or of the QUEUEs given.

    QUEUE is a DelayQueue, a StreamQueue, or its asyncio version, with a callback. MODULE may be in the current folder.
    Options not given here default to the queue's own. A queue without a URL uses --url. Each process enters
    the 'lifespan' of each queue before its first message, and leaves it at its end. See 'delayq docs workers'.

    With weights, as in 'app:critical=6 app:low=1', one pool of --concurrency callbacks serves all queues: while both
    have messages, 6 of any 7 starts are those of critical. See 'delayq docs many-queues'.

    With --queues 'tenant-*', one pool serves every queue whose name matches, with the callback and options of QUEUE.
    The names are read again every 10 s: new queues are served, and one that is gone is drained and dropped.

    SIGTERM or SIGINT (Ctrl-C) lets running callbacks finish for up to --grace; a second signal cuts them off (exit code
    1). With --processes, a worker that dies is replaced. If Redis goes away, a worker continues once it is back. If one
    queue fails for good, the whole worker stops, with the worst exit code of its queues.

    For callbacks that leak memory: at --max-messages or --max-memory a process finishes its callbacks as at SIGTERM,
    and another takes its place. With --kill-hung, so does a process with a callback that runs 2 s beyond its timeout,
    once its other callbacks have finished; the one that hangs ends with the process.

    Under systemd, a unit with Type=notify is told when the worker consumes and when it drains; with WatchdogSec, also
    that its loops go on. See 'delayq docs deployment'.

    With --queue and --deliver you need no MODULE: each message is logged, posted to a webhook, mailed, or passed to a
    program. Put the program at the end: --deliver command -- PROGRAM ARGUMENT…. See 'delayq docs delivery'.
    """
    session: Session = ctx.obj
    check_options(ctx, words)
    leave_first_process()
    if options["deliver"] and (options["strict"] or options["limit"] or options["queues"]):
        text = "--queues, --strict and --limit are for several queues of modules, and --deliver serves one"
        raise click.UsageError(text)
    if session.url:
        os.environ["DELAYQ_URL"] = session.url
    configure_logging(options["log_level"], as_json=options["log_json"])
    if options["log_messages"]:
        log_messages_at(logging.INFO)
    http = HttpOptions(options["http_port"], options["http_host"], options["http_socket"])
    limits = ProcessLimits(options["max_messages"] or 0, options["max_memory"] or 0, options["kill_hung"])
    service = _find_service_manager()
    if supervised is None and (code := _as_parent(ctx, processes, limits, http, service)) is not None:
        return code

    from delayq.cli.worker.run_worker import Progress, serve
    from delayq.cli.worker.supervisor import Channel
    from delayq.queue.consuming.consumer import ConsumeOptions

    channel = Channel(*supervised) if supervised else None
    if supervised and supervised[0] > 1:
        # Only the first process warns about the server.
        logging.getLogger("delayq.doctor").setLevel(logging.ERROR)
    queues: Sequence[AnyQueue | PooledQueues]
    queues, ended = _delivering(session, options, words) if options["deliver"] else _imported(session, words, options)
    if options["otel"]:
        _instrument(queues)
    opened, started = (channel.report_opened, channel.report_started) if channel else (lambda: None, lambda: None)
    progress = Progress(opened, started, ended)
    # The start fails if Redis cannot be reached; later the consumer tries as long as it takes.
    consume = ConsumeOptions(connect_timeout=session.timeout, burst=options["burst"])
    consume |= {"concurrency": options["concurrency"], "grace": options["grace"]}
    limits.check_start()
    is_over = partial(_is_over, limits.spread(), channel)
    try:
        with http.of_process() as monitor, _watch(service, channel, options["beat"]) as watch:
            watchers = [one for one in (monitor, watch) if one is not None]
            serve(queues, consume, progress, is_over=is_over, leaves_hung=limits.kill_hung, watchers=watchers)
    except StoppedByCallbackError as error:
        if channel is None:
            raise
        channel.report_error(str(error))
        return to_command_error(error).code
    if channel:
        channel.report_finished()
    return Exit.OK


def _as_parent(
    ctx: click.Context, processes: int, limits: ProcessLimits, http: HttpOptions, service: ServiceManager | None
) -> int | None:
    """Run the worker in processes of its own, if that is asked for; returns the exit code, None if it is not."""
    if ctx.params["reload"]:
        if processes > 1 or any(limits) or http.port is not None:
            raise click.UsageError("--reload is for development: it goes with one process, without limits and HTTP")
        from delayq.cli.worker.reloading import run_reloading

        _export_options(ctx)
        return run_reloading(partial(_command, ctx, lambda _: ["--log-messages"], service), Path.cwd())
    if processes == 1 and not any(limits):
        return None
    from delayq.cli.worker.supervisor import Supervisor

    _export_options(ctx)
    with http.of_parent() as child_options:
        return Supervisor(partial(_command, ctx, child_options, service), processes, service).run()


def _find_service_manager() -> ServiceManager | None:
    """Return the service manager that has started this process, such as systemd; None without one."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from delayq.cli.worker.service_manager import find_service_manager

    return find_service_manager()


def _watch(
    service: ServiceManager | None, channel: Channel | None, beat: float | None
) -> AbstractContextManager[LoopWatch | None]:
    """Return what tells the service manager, or the parent, that the consumers go on; nothing if nobody asks."""
    if service is not None:
        return service.watching()
    if channel is None or beat is None:
        return nullcontext()
    from delayq.cli.worker.service_manager import beating

    return beating(channel.report_alive, beat)


def _is_over(limits: ProcessLimits, channel: Channel | None, messages: int, hung_for: float) -> bool:
    """Return whether this process has reached a limit, and tell its parent to start another in its place."""
    reached = limits.reached(messages, hung_for)
    if reached is not None and channel:
        log.info("another process takes over after %s", reached)
        channel.report_renewed()
    return reached is not None


def _imported(
    session: Session, words: Sequence[str], options: dict[str, Any]
) -> tuple[Sequence[AnyQueue | PooledQueues], Callable[[], None]]:
    """Return the queues of modules, and a function for the end that does nothing."""
    from delayq.cli.support.app_loader import find_queues
    from delayq.cli.worker.worker_pool import find_matching, find_pool
    from delayq.queue.async_delay_queue import AsyncDelayQueue
    from delayq.queue.delay_queue import DelayQueue

    if options["queues"]:
        pool: PooledQueues | None = find_matching(options["queues"], words, options["limit"], strict=options["strict"])
    else:
        pool = find_pool(words, options["limit"], strict=options["strict"])
    queues = find_queues(words) if pool is None else pool.queues
    for queue in queues:
        if isinstance(queue, DelayQueue | AsyncDelayQueue) and queue.prefix != session.prefix:
            log.warning("%s has the prefix %r, not %r", queue.name, queue.prefix, session.prefix)
    return queues if pool is None else [pool], lambda: None


def _instrument(queues: Sequence[AnyQueue | PooledQueues]) -> None:
    """Record traces and metrics of all queues."""
    from delayq.cli.worker.worker_pool import PooledQueues
    from delayq.telemetry.instrumentation import has_sdk, instrument

    if not has_sdk():
        log.warning("OpenTelemetry has no SDK here, so nothing is recorded: see 'delayq docs telemetry'")
    for one in queues:
        instrument(*(one.queues if isinstance(one, PooledQueues) else [one]))


def _delivering(
    session: Session, options: dict[str, Any], words: tuple[str, ...]
) -> tuple[Sequence[AnyQueue], Callable[[], None]]:
    """Return a queue with an adapter as callback, and the function that closes the adapter."""
    deliver = make_adapter(options, words)
    deliver.closes_queue = True
    queue = open_queue(session, options)
    queue.callback(deliver)
    return [queue], deliver.close


def _export_options(ctx: click.Context) -> None:
    """Pass the options to child processes in the environment: everyone on the machine can read a command line."""
    for option in ctx.command.params:
        value = ctx.params.get(str(option.name))
        if not isinstance(option, click.Option) or option.name in _NOT_EXPORTED or value is None:
            continue
        if isinstance(value, timedelta):
            value = value.total_seconds()
        elif isinstance(value, tuple):
            value = "\n".join(value)
        os.environ[f"DELAYQ_WORKER_{str(option.name).upper()}"] = str(value)


def _command(
    ctx: click.Context,
    child_options: Callable[[int], list[str]],
    service: ServiceManager | None,
    number: int,
    channel: int,
) -> list[str]:
    """Return the arguments of a child process, which takes the options of `worker` from the environment."""
    root = ctx.find_root().params
    command = ["--prefix", root["prefix"], "--timeout", f"{ctx.obj.timeout.total_seconds()}"]
    command += ["--traceback"] if root["traceback"] else []
    command += ["worker", "--processes", "1", "--supervised", str(number), str(channel)]
    command += child_options(number)
    if service is not None and service.watchdog < math.inf:
        command += ["--beat", f"{service.watchdog}"]
    return [*command, "--", *ctx.params["words"]]
