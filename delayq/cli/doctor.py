"""`delayq doctor`: checks queues and their Redis server, and repairs them."""

from __future__ import annotations

from itertools import starmap

import click

from delayq.broker.engine import Feature
from delayq.cli.exit_codes import Exit, NotFoundError
from delayq.cli.options import QUEUE, dry_run_option, engine_option, json_option
from delayq.cli.output import json_fields, print_note, print_result
from delayq.cli.session import Session
from delayq.queue.repair_report import Checkup, Finding, FindingKind
from delayq.text import pluralize


@click.command()
@engine_option(Feature.REPAIR)
@click.argument("names", metavar="[QUEUE]...", type=QUEUE, nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@dry_run_option
@click.option("--deep", is_flag=True, help="Check every message and the dead letter; by default only due messages.")
@json_option
@click.pass_obj
def doctor(session: Session, names: tuple[str, ...], *, repair: bool, dry_run: bool, deep: bool, as_json: bool) -> Exit:
    """Check each QUEUE, or all queues, and their Redis server; print one line per problem.

    Changes nothing without --repair. A repair loses no message that still has its payload: one that is in no structure
    is delivered now. Workers may run meanwhile.

    Exit code 4 if a problem was found and not repaired.

    JSON: {"healthy", "findings": [{"queue", "kind", "count", "mended", "text", "ids"}, …]}; "queue" is null for a
    problem of the server, "mended" is the number of repaired messages.
    """
    existing = session.queue_names()
    for name in names:
        if name not in existing:
            raise NotFoundError("queue", name, existing)
    chosen = list(dict.fromkeys(names or existing))
    checkups = []
    for name in chosen:
        queue = session.queue(name, codec="bytes")
        checkups.append(queue.repair(deep=deep) if repair and not dry_run else queue.examine(deep=deep))
    findings = _findings(checkups)
    healthy = all(checkup.healthy for checkup in checkups)
    found = [{"queue": name, **json_fields(finding)} for name, finding in findings]
    print_result({"healthy": healthy, "findings": found}, *starmap(_line, findings), as_json=as_json)
    if not (findings or as_json):
        print_note(f"no problems found in {pluralize(len(chosen), 'queue')}")
    return Exit.OK if healthy else Exit.UNHEALTHY


def _findings(checkups: list[Checkup]) -> list[tuple[str | None, Finding]]:
    """Return the findings with their queue; those about the server, which all queues share, once and with None."""
    return list(
        dict.fromkeys(
            (None if finding.kind is FindingKind.SERVER else checkup.queue, finding)
            for checkup in checkups
            for finding in checkup.findings
        )
    )


def _line(queue: str | None, finding: Finding) -> str:
    if queue is None:
        return f"server  {finding.text}"
    problem = str(finding.kind) if not finding.text else f"{finding.kind}: {finding.text}"
    if finding.ids:
        more = ", …" if finding.count > len(finding.ids) else ""
        problem += f": {finding.count:,} ({', '.join(finding.ids)}{more})"
    return f"{queue}  {problem}{'  repaired' if finding.mended else ''}"
