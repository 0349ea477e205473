"""`delayq plan`, `load`, `export` and `import`: bulk data without Spark."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.bulk.load_options import CommandLineOptions, LoadOptions, check_load
from delayq.cli.support import standard_streams
from delayq.cli.support.exit_codes import CommandError, Exit, interrupted
from delayq.cli.support.options import (
    DURATION,
    SERVER_WHEN,
    F,
    json_option,
    max_payload_option,
    queue_with,
    reveal_option,
    states_option,
)
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import progress_bars, spinner
from delayq.cli.support.session import Session
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

MANY = 1_000_000
"""Reminders from which Spark is worth its start."""


_PLAN_OPTIONS = (
    click.option(
        "--on-error",
        type=click.Choice(["fail", "collect"]),
        default="fail",
        help="Handle invalid rows: fail, or leave them out and count them as refused.",
    ),
    click.option("--rejects", metavar="TABLE", help="With --on-error collect, write their ids and reasons as Parquet."),
    click.option(
        "--accept-changes", is_flag=True, help="Send most reminders again, as their payloads get or lose columns."
    ),
)


def _with(options: Sequence[Callable[[F], F]], function: F) -> F:
    """Add options to a command, in their order."""
    for option in reversed(options):
        function = option(function)
    return function


def plan_options(function: F) -> F:
    """Add the options of a plan, with Spark or without."""
    return _with(_PLAN_OPTIONS, function)


def check_plan_paths(out: str | Path, previous: str | Path | None, rejects: str | None, on_error: str) -> None:
    """Raise a usage error if a plan would be written over another table, or there are no rejects to write."""
    if previous is not None and Path(previous).absolute() == Path(out).absolute():
        raise click.UsageError(f"{out} is also the previous plan: write the new one to another path")
    if rejects is None:
        return
    if on_error != "collect":
        raise click.UsageError("--rejects needs --on-error collect")
    others = [Path(one).absolute() for one in (out, previous) if one is not None]
    if Path(rejects).absolute() in others:
        raise click.UsageError(f"{rejects} is also a plan: write the rejects to another path")


def tell_plan(plan: str, counts: dict[str, int], *, as_json: bool) -> None:
    """Print how many reminders a plan has of each action, and how many rows were refused."""
    if as_json:
        print_json({"plan": plan, **counts})
        return
    told = (f"{number:,} {what}" for what, number in counts.items() if number or what != "refused")
    print_note(f"planned {plan}: " + ", ".join(told))


@click.command()
@click.argument("things", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("out", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--rules", required=True, type=click.Path(exists=True, dir_okay=False), help="Set the TOML file.")
@click.option(
    "--previous", metavar="PLAN", type=click.Path(path_type=Path), help="Mark only what differs from it as new."
)
@plan_options
@json_option
def plan(
    *,
    things: Path,
    out: Path,
    rules: str,
    previous: Path | None,
    on_error: str,
    rejects: str | None,
    accept_changes: bool,
    as_json: bool,
) -> None:
    """Plan reminders for the rows of FILE (columns id, time and zone), and write them to PLAN as Parquet.

    FILE is CSV, JSON Lines (.jsonl) or Parquet. The plan is the same as that of `delayq spark plan`, which is for
    tables that do not fit into memory. With --previous, reminders that are no longer wanted stay in PLAN as cancels
    until they are past.

    JSON: {"plan", "new", "keep", "cancel", "refused"}.
    """
    from delayq.bulk.reminder_rules import read_rules

    known = read_rules(rules)
    check_plan_paths(out, previous, rejects, on_error)
    bulk = open_bulk()
    with spinner("planning"):
        before = None if previous is None else bulk.read_table(previous)
        table = bulk.read_table(things)
        planned = bulk.plan(
            table,
            known,
            previous=before,
            since=datetime.now(UTC),
            on_error=on_error,
            accept_changes=accept_changes,
            tell=print_note,
        )
        refused = bulk.refused_rows(table, known) if on_error == "collect" else None
        if refused is not None and rejects is not None:
            bulk.write_table(refused, rejects)
        bulk.write_table(planned, out)
    counts = {"new": 0, "keep": 0, "cancel": 0} | Counter(planned["action"].to_pylist())
    tell_plan(str(out), counts | {"refused": 0 if refused is None else refused.num_rows}, as_json=as_json)
    if planned.num_rows >= MANY and not as_json:
        print_note("a plan of this size is made faster by `delayq spark plan`, on all processors")


def open_bulk() -> Any:
    """Return the package that plans and loads without Spark; fails if what it needs is not installed."""
    try:
        import delayq.bulk.files.table_files
        import delayq.bulk.load
        import delayq.bulk.plan
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed: pip install 'delayq[bulk]'") from error
    return delayq.bulk


_OPTIONS = (
    click.option(
        "--from", "start", type=SERVER_WHEN, default="now", metavar="WHEN", help="Load what is due from then on."
    ),
    click.option(
        "--until", type=SERVER_WHEN, metavar="WHEN", help="Load messages due before then: a time, or +1d from --from."
    ),
    click.option("--run", metavar="NAME", help="Set the name in the ledger (`delayq runs`); generated by default."),
    click.option(
        "--on-conflict",
        type=click.Choice(["skip", "replace", "fail"]),
        default="skip",
        help="Choose what to do with a message whose id is already pending.",
    ),
    click.option("--on-error", type=click.Choice(["fail", "collect"]), default="fail", help="Handle invalid rows."),
    click.option(
        "--max-rows-per-second",
        type=click.FloatRange(min=0, min_open=True),
        help="Limit the rows sent (on Spark by each task).",
    ),
    click.option("--batch-size", type=click.IntRange(1, 1000), default=200, help="Set the messages per call."),
    click.option(
        "--default-retries", type=click.IntRange(0), default=3, help="Set the retries of rows that name none."
    ),
    max_payload_option,
    click.option(
        "--dedupe-window", type=DURATION, help="Refuse ids so long after they are settled.  [default: 1d at first]"
    ),
)


def load_options(function: F) -> F:
    """Add the options of a load, with Spark or without."""
    return _with(_OPTIONS, function)


def progress_of(ledger: DelayQueue[Any], run: str | None) -> str:
    """Return what a load has sent so far."""
    info = next((info for info in ledger.runs() if info.state == "writing" and run in (None, info.run)), None)
    return f"{info.sent:,} rows" if info else ""


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@queue_with(Feature.SPARK)
@load_options
@json_option
@click.pass_obj
def load(session: Session, /, file: Path, queue: str, *, run: str | None, as_json: bool, **options: Any) -> None:
    """Load the messages of FILE that are due in a period into QUEUE; repeat it to add only what is missing.

    FILE is CSV, JSON Lines (.jsonl) or Parquet, with the columns id, due and payload, and optionally retries, headers
    and the options of a send, such as name, priority or expires: `delayq docs bulk-columns`. A due time has its zone:
    2027-01-31T09:00:00+01:00. Or FILE is a plan of `delayq plan` or `delayq spark plan`: then its cancels are carried
    out as well. `delayq spark load` does the same for tables that do not fit into memory.

    JSON: {"run", "state", "new", "exists", "replaced", "running", "settled", "refused", "past", "cancelled"}.
    """
    open_bulk()
    from delayq.bulk.load import load_table

    sent = check_load(CommandLineOptions, **{field.name: options.pop(field.name) for field in fields(LoadOptions)})
    ledger: DelayQueue[Any] = session.queue(queue)
    place: dict[str, Any] = {"url": session.url, "prefix": session.prefix, "deadline": session.timeout}
    try:
        with spinner(f"loading {file}", lambda: progress_of(ledger, run)):
            info = load_table(file, queue, sent, run=run, **place, **options)
    except KeyboardInterrupt as error:
        raise interrupted(error) from error
    if as_json:
        print_json(info.facts())
        return
    print_note(info.told())


@click.command()
@queue_with(Feature.EXPORT)
@click.argument("file", metavar="[FILE]", default="-", type=click.Path(path_type=Path))
@states_option("Export")
@click.option("--resume", is_flag=True, help="Go on with an export to FILE that was interrupted.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@reveal_option
@json_option
@click.pass_obj
def export(
    session: Session,
    /,
    queue: str,
    file: Path,
    *,
    states: tuple[str, ...],
    resume: bool,
    force: bool,
    reveal: bool,
    as_json: bool,
) -> None:
    """Write the messages of QUEUE to FILE, for `delayq import`: a JSON object a line, or Parquet in a FILE.parquet.

    Without a FILE the lines go to the standard output. FILE appears when it is complete; one that is there stays as it
    is without --force. Results, schedules, limits and settings are not exported, nor is what waits to follow a running
    message. While consumers work, a message that changes its state may be in the file twice, and one that becomes
    pending again may be missing: `delayq pause` the queue for an exact copy.

    A line: {"id", "state", "due", "retries": those left, "attempts", "payload", "encoding": json, text, base64 or
    redacted} and what the message has of "headers", "snoozes", "error", "reason", "died" and the options of a send, by
    their names, with "expires_after" for what expires so long after it is due. Durations are in seconds. Payloads with
    what the queue redacts are not imported: a backup needs --reveal.

    JSON: {"queue", "file", "exported", "states": {STATE: number, …}}; both null if --resume finds FILE complete.
    """
    to_stdout = str(file) == "-"
    if to_stdout:
        _check_stdout("--resume" if resume else "--json" if as_json else "")
    from delayq.bulk.export import export_messages
    from delayq.bulk.export_file import is_begun
    from delayq.bulk.files.local_files import is_file
    from delayq.bulk.files.message_lines import is_parquet

    if not (to_stdout or force) and is_file(file) and not (resume and is_begun(file)):
        if not resume:
            raise click.UsageError(f"{file} is there already: give --force to replace it, or another FILE")
        if as_json:
            print_json({"queue": queue, "file": str(file), "exported": None, "states": None})
        else:
            print_note(f"{file} is already complete: give --force in place of --resume to replace it")
        return
    if is_parquet(file):
        open_bulk()
    hidden = session.check_queue_exists(queue)
    counts = session.queue(queue).counts()
    total = sum(getattr(counts, state) for state in states)
    try:
        with progress_bars() as add_bar:
            advance = add_bar(f"exporting {queue}")
            found = export_messages(
                queue,
                sys.stdout.buffer if to_stdout else file,
                states=states,
                resume=resume,
                reveal=reveal,
                url=session.url,
                prefix=session.prefix,
                deadline=session.timeout,
                report=lambda done: advance(done, total),
            )
    except KeyboardInterrupt as error:
        more = "" if to_stdout else ": export again with --resume to go on"
        raise CommandError(f"interrupted{more}", Exit.INTERRUPTED) from error
    exported = sum(found.values())
    if as_json:
        print_json({"queue": queue, "file": str(file), "exported": exported, "states": found})
        return
    notes = [f"exported {pluralize(exported, 'message')} of {queue}"]
    if counts.successors:
        notes.append(f"not exported: {pluralize(counts.successors, 'message')} that waits to follow a running one")
    if hidden and not reveal:
        notes.append("what the queue redacts is hidden: an import needs an export with --reveal")
    print_note("; ".join(notes))


def _check_stdout(option: str) -> None:
    """Refuse to export to the standard output with this option, or if it is closed."""
    if option:
        raise click.UsageError(f"{option} needs a FILE")
    if standard_streams.stdout_is_closed:
        raise CommandError("standard output is closed: nothing can be exported to it")


@click.command("import")
@queue_with(Feature.EXPORT)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--dead",
    type=click.Choice(["keep", "send", "skip"]),
    default="keep",
    help="Keep dead messages dead, send them again, due now, or leave them out.",
)
@click.option("--run", metavar="NAME", help="Set the name in the ledger (`delayq runs`); generated by default.")
@click.option("--strict", is_flag=True, help="Check the whole FILE first: send nothing if a line is invalid.")
@click.option("--max-rows-per-second", type=click.FloatRange(min=0, min_open=True), help="Limit the messages sent.")
@max_payload_option
@click.option(
    "--dedupe-window", type=DURATION, help="Refuse ids so long after they are settled.  [default: 1d at first]"
)
@json_option
@click.pass_obj
def import_(session: Session, /, queue: str, file: Path, *, as_json: bool, **options: Any) -> None:
    """Send the messages of FILE, which `delayq export` has written, to QUEUE; - stands for the standard input.

    They keep ids, payloads, due times, the retries left, headers and options, and wait as pending. A message whose id
    is in QUEUE is left as it is: repeat an import that was interrupted to send the rest. Dead messages come into the
    dead letter, as they were in theirs, unless QUEUE has the same death, their id lives there, or it was settled since;
    this needs the role admin. Payloads are stored as they are in FILE, also in a queue that encrypts. Invalid lines,
    and those whose payload is longer than --max-payload, are left out and counted as refused, and the exit code is 1;
    `delayq runs QUEUE RUN` lists them.

    JSON: {"run", "state", "new", "exists", "settled", "refused", "dead": those of the new that are in the dead letter,
    "left_out": dead ones, by --dead skip, "first_refusal", …}, as `delayq load` has it.
    """
    from delayq.bulk.files.message_lines import is_parquet
    from delayq.bulk.import_messages import import_messages

    if options["strict"] and str(file) == "-":
        raise click.UsageError("--strict needs a FILE")
    if is_parquet(file):
        open_bulk()
    try:
        with progress_bars() as add_bar:
            advance = add_bar(f"importing {file}")
            found = import_messages(
                sys.stdin.buffer if str(file) == "-" else file,
                queue,
                url=session.url,
                prefix=session.prefix,
                deadline=session.timeout,
                report=lambda done, total: advance(done, total, f"{done * 100 // total}%" if total else ""),
                **options,
            )
    except KeyboardInterrupt as error:
        raise interrupted(error) from error
    if as_json:
        print_json(found.facts())
    if found.refused:
        raise CommandError(f"{found.told()}: {found.first_refusal}")
    if as_json:
        return
    print_note(found.told())
