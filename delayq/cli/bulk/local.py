"""`delayq plan`, `load`, `export` and `import`: bulk data, without Spark if it is small."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from delayq.broker.calls import Calls
from delayq.broker.engine import Feature
from delayq.broker.keys import Keys
from delayq.cli.bulk.engine_choice import PYTHON, open_bulk
from delayq.cli.bulk.loading import LoadCommand, load_options
from delayq.cli.bulk.planning import PlanCommand, plan_options
from delayq.cli.support import standard_streams
from delayq.cli.support.cold_notes import note_cold
from delayq.cli.support.exit_codes import CommandError, Exit, interrupted
from delayq.cli.support.options import (
    DURATION,
    json_option,
    max_payload_option,
    queue_with,
    reveal_option,
    states_option,
)
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import progress_bars
from delayq.cli.support.session import Session
from delayq.values.text import pluralize


@click.command()
@click.argument("things", metavar="FILE")
@click.argument("out", metavar="PLAN")
@plan_options
def plan(**options: Any) -> None:
    """Plan reminders for the rows of FILE (columns id, time and zone), and write them to PLAN as Parquet.

    FILE is CSV, JSON Lines (.jsonl) or Parquet. The plan is the same with Spark and without; a table of the catalog, a
    URL and a `where` need Spark, as does --engine spark. With --previous, reminders that are no longer wanted stay in
    PLAN as cancels until they are past.

    JSON: {"plan", "new", "keep", "cancel", "refused"}.
    """
    PlanCommand(**options).make(PYTHON, {})


@click.command()
@click.argument("file", metavar="FILE")
@load_options
@click.pass_obj
def load(
    session: Session, /, file: str, queue: str, *, engine: str, run: str | None, as_json: bool, **options: Any
) -> None:
    """Load the messages of FILE that are due in a period into QUEUE; repeat it to add only what is missing.

    FILE is CSV, JSON Lines (.jsonl) or Parquet, with the columns id, due and payload, and optionally retries, headers
    and the options of a send, such as name, priority or expires: `delayq docs bulk-columns`. A due time has its zone:
    2027-01-31T09:00:00+01:00. Or FILE is a plan of `delayq plan` or `delayq spark plan`: then its cancels are carried
    out as well. Spark loads tables that do not fit into memory.

    JSON: {"run", "state", "new", "exists", "replaced", "running", "settled", "refused", "past", "cancelled"}.
    """
    LoadCommand(session, file, queue, run, options).make(engine, PYTHON, {}, as_json=as_json)


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
    is without --force. Results, schedules, limits and settings are not exported, nor is what is cold, nor what waits to
    follow a running message. While consumers work, a message that changes its state may be in the file twice, and one
    that becomes pending again may be missing: `delayq pause` the queue for an exact copy.

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
    note_cold(session.executor, Calls(Keys.of(session.prefix, queue)), "not exported")
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
