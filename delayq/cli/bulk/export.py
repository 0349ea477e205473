"""`delayq export`: the messages of a queue as lines of JSON or as Parquet, for a backup or another queue."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from delayq.broker.engine import Feature
from delayq.cli.bulk.plan import open_bulk
from delayq.cli.support import standard_streams
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import json_option, queue_with, reveal_option, states_option
from delayq.cli.support.output import print_json, print_note
from delayq.cli.support.progress import progress_bars
from delayq.cli.support.session import Session
from delayq.values.text import pluralize


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
