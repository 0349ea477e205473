"""`delayq notify`: tells people what goes wrong in a queue, without code."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.groups import GroupedCommand
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import DURATION, ParamType, queue_with
from delayq.cli.support.output import print_note
from delayq.cli.support.session import Session
from delayq.cli.worker.deliver import SINK_GROUPS, find_sink_error, make_adapter, notify_options
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog
from delayq.values.text import pluralize
from delayq.values.times import to_millis

if TYPE_CHECKING:
    from delayq.delivery import Adapter

log = SafeLog("delayq.notify")

KINDS = ("dead", "late", "paused", "silent")
TEXT = "{text}"
BODY = "{text}\n\n" + "".join(
    f"{name}: {{{name}}}\n" for name in ("queue", "kind", "group", "count", "first", "last", "sample")
)
_GROUPS = {
    **SINK_GROUPS,
    "Logging": ["--log-level", "--log-json"],
}


class _Kinds(ParamType):
    """Kinds separated by commas."""

    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        chosen = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in chosen:
            if word not in KINDS:
                self.fail(f"{word!r:.40} is none of {', '.join(KINDS)}", param, ctx)
        return chosen


@click.command(cls=GroupedCommand, groups=_GROUPS)
@queue_with(Feature.EVENTS)
@click.option(
    "--on", type=_Kinds(), default=",".join(KINDS), show_default=True, metavar="KIND,…", help="Tell of these."
)
@click.option(
    "--deliver", type=click.Choice(["webhook", "smtp", "log"]), required=True, help="Where to: log prints JSON lines."
)
@click.option("--deliver-timeout", type=DURATION, help="Limit the time of a delivery.")
@click.option("--max-lag", type=DURATION, default="1m", show_default=True, help="Late is what has waited longer.")
@click.option("--collapse", type=DURATION, default="1h", show_default=True, help="One notice of a topic in this time.")
@click.option("--every", type=DURATION, default="10s", show_default=True, help="Look this often.")
@click.option("--name", default="default", show_default=True, help="Name this notifier: each keeps its own position.")
@click.option("--once", is_flag=True, help="Look once, deliver, and exit: for cron.")
@notify_options
@log_options
@click.pass_context
def notify(ctx: click.Context, /, queue: str, **options: Any) -> Exit:
    """Tell people what goes wrong in QUEUE: by webhook, by mail, or as JSON lines.

    \b
    dead    messages have moved to the dead letter; a topic for each error
    late    a due message has waited for longer than --max-lag
    paused  the queue is paused; with the event log on, also a name
    silent  messages are due, and nobody consumes

    Of each topic one notice an hour is delivered (--collapse), with the count of what has happened since the last one.
    It is delivered at least once: a repeated one has the same id. What happens while this command does not run is told
    later. Only what was there before its first run is not. Notices have no payloads.

    It follows the event log, if that is on ('delayq events QUEUE --on'); without it, dead messages are counted, but not
    told apart by their errors. SIGTERM or SIGINT (Ctrl-C) stops it. It needs the role notifier.

    A notice that a recipient refuses for good, as with HTTP 404, is given up for this recipient and logged.

    Exit code 1 with --once if a notice could not be delivered, and is kept for the next run, or was given up.
    """  # noqa: D301 - the escape is one
    from delayq.broker.calls import Calls
    from delayq.broker.keys import Keys
    from delayq.notify.notices import NoticeKind
    from delayq.notify.notifier import Notifier, Sink
    from delayq.notify.watch import Watched

    session: Session = ctx.obj
    sinks = _sinks(ctx, options)
    collapse, every = to_millis(options["collapse"], "--collapse"), to_millis(options["every"], "--every", min=100)
    if not options["once"]:
        configure_logging(options["log_level"], as_json=options["log_json"])
    kinds, max_lag = [NoticeKind(kind) for kind in options["on"]], to_millis(options["max_lag"], "--max-lag")
    watched = Watched(session.prefix, queue, kinds, max_lag, collapse)
    calls = Calls(Keys.of(session.prefix, queue))
    try:
        session.check_queue_exists(queue)
        receivers = [Sink(name, one.hand_on) for name, one in sinks.items()]
        notifier = Notifier(session.executor, calls, options["name"], watched, receivers)
        if options["once"]:
            notifier.turn()
            notifier.raise_if_failed()
            if notifier.began:
                print_note(f"begins here: {pluralize(notifier.delivered, 'notice')}; tells from now on")
        else:
            stopped = threading.Event()
            with handle_signals(lambda *_: stopped.set()):
                notifier.run(lambda seconds: _wait(stopped, seconds), every / 1000)
            log.info("stopped")
    finally:
        for one in sinks.values():
            one.close()
    return Exit.OK


def _wait(stopped: threading.Event, seconds: float) -> bool:
    """Wait in slices, between which handlers of signals run; return whether to stop."""
    from delayq.queue.consuming.consumer import SIGNALS_WITHIN

    while not stopped.is_set() and seconds > 0:
        stopped.wait(min(SIGNALS_WITHIN, seconds))
        seconds -= SIGNALS_WITHIN
    return stopped.is_set()


def _sinks(ctx: click.Context, options: dict[str, Any]) -> Mapping[str, Adapter]:
    """Return where notices go, by name: for mails each recipient, so that nobody waits for another's address."""
    on_command_line = click.core.ParameterSource.COMMANDLINE
    explicit = [name for name in ctx.params if ctx.get_parameter_source(name) is on_command_line]
    options["smtp_subject"] = options["smtp_subject"] or TEXT
    options["smtp_body"] = BODY
    if options["webhook_service"]:
        options["webhook_text"] = options["webhook_text"] or TEXT
    if error := find_sink_error(options["deliver"], options, explicit):
        raise click.UsageError(error, ctx)
    if options["deliver"] == "smtp":
        return {f"smtp {one}": make_adapter({**options, "smtp_to": [one]}, ()) for one in options["smtp_to"]}
    url = options["webhook_url"] if options["deliver"] == "webhook" else ""
    place = f" {blake2b(url.encode(), digest_size=4).hexdigest()}" if url else ""  # a URL may have a secret in it
    return {f"{options['deliver']}{place}": make_adapter(options, ())}
