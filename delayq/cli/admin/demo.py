"""`delayq demo`: deliver reminders of a year of public holidays in half a minute, with a crash."""

from __future__ import annotations

from importlib.util import find_spec

import click

from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.options import json_option
from delayq.cli.support.output import console, print_json, print_note
from delayq.cli.support.progress import catch_stop_signals
from delayq.cli.support.session import Session


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=30, help="Run the year in this time.")
@click.option("--countries", metavar="CODES", help="Only these countries, such as PT,JP,BR.")
@click.option("--seed", default=0, help="Determines which callbacks fail.")
@json_option
@click.pass_obj
def demo(session: Session, *, seconds: float, countries: str | None, seed: int, as_json: bool) -> int:
    """See the queue at work: a year of the world's public holidays in half a minute.

    Sends a reminder for each public holiday of every country, due at nine in the morning of the day before, local time.
    Two workers deliver them; one is killed half-way through the year, and some callbacks fail. The balance at the end
    says what has become of every reminder. If it does not add up, the exit code is 1.

    Runs on the Redis of --url or DELAYQ_URL, under a prefix of its own, and removes everything at the end. Without a
    URL it starts a redis-server; if there is none on PATH, it runs embedded, in one process.
    """
    if missing := [name for name in ("holidays", "tzdata") if find_spec(name) is None]:
        raise CommandError(f"the demo needs the package {missing[0]}: pip install 'delayq[demo]'")
    from delayq.demo.demo_server import open_server
    from delayq.demo.holidays.holiday_demo import run_demo

    output = console()
    output.quiet = as_json
    with catch_stop_signals() as interrupted, open_server(session.url, timeout=session.timeout) as server:
        if as_json and server.embedded:
            print_note(f"delayq: the demo runs on {server.label}")
        balance = run_demo(output, server, interrupted.event, seconds=seconds, countries=countries, seed=seed)
    if as_json:
        print_json(balance)
    return interrupted.exit_code(right=balance["adds_up"])
