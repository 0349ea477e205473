"""`delayq doctor`: what is wrong with queues and their server, and mending it."""

from __future__ import annotations

import click

from delayq.cli.engines import engine_option
from delayq.cli.failure import Exit, NotFound
from delayq.cli.options import QUEUE, dry_run_option, json_option
from delayq.cli.output import put, put_json, say
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.findings import Checkup, Finding, FindingKind


@click.command()
@engine_option("delay", lacking="doctor")
@click.argument("queues", metavar="[QUEUE]...", type=QUEUE, nargs=-1)
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@dry_run_option
@click.option("--deep", is_flag=True, help="Look at every message and the dead letter, not only at what was promoted.")
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, queues: tuple[str, ...], *, repair: bool, dry_run: bool, deep: bool, as_json: bool
) -> None:
    """Look for what is wrong with each QUEUE, or with all of them, and with their Redis; a line for each finding.

    Nothing is changed unless --repair is given. That loses no message which still has its payload: one without a place
    is delivered now. Workers may go on meanwhile.

    Exit code 4 if something is wrong and has not been mended.

    JSON: {"healthy", "findings": [{"queue", "kind", "count", "mended", "text", "ids"}, …]}; queue is null for what
    is wrong with the server.
    """
    session: Session = ctx.obj
    known = session.names()
    for name in queues:
        if name not in known:
            raise NotFound("queue", name, known)
    chosen = list(dict.fromkeys(queues or known))
    checkups = []
    for name in chosen:
        patient = session.queue(name, codec="bytes")
        checkups.append(patient.repair(deep=deep) if repair and not dry_run else patient.examine(deep=deep))
    findings = list(dict.fromkeys(_told(checkups)))
    healthy = all(checkup.healthy for checkup in checkups)
    if as_json:
        put_json({"healthy": healthy, "findings": [_facts(queue, finding) for queue, finding in findings]})
    else:
        for queue, finding in findings:
            put(_line(queue, finding))
        if not findings:
            say(f"found nothing wrong with {counted(len(chosen), 'queue')}")
    ctx.exit(Exit.OK if healthy else Exit.UNHEALTHY)


def _told(checkups: list[Checkup]) -> list[tuple[str | None, Finding]]:
    """Return what is to be told of which queue; of the server, which is that of all of them, of none."""
    return [
        (None if finding.kind is FindingKind.SERVER else checkup.queue, finding)
        for checkup in checkups
        for finding in checkup.findings
    ]


def _line(queue: str | None, finding: Finding) -> str:
    if queue is None:
        return f"server  {finding.text}"
    what = str(finding.kind) if not finding.text else f"{finding.kind}: {finding.text}"
    if finding.ids:
        more = ", …" if finding.count > len(finding.ids) else ""
        what += f": {finding.count:,} ({', '.join(finding.ids)}{more})"
    return f"{queue}  {what}{'  mended' if finding.mended else ''}"


def _facts(queue: str | None, finding: Finding) -> dict[str, object]:
    return {
        "queue": queue,
        "kind": str(finding.kind),
        "count": finding.count,
        "mended": finding.mended,
        "text": finding.text,
        "ids": finding.ids,
    }
