"""`delayq demo`: a year of the world's public holidays in half a minute, with a crash, and an account of it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from delayq.cli.failure import Failure
from delayq.cli.interruption import interruption
from delayq.cli.options import json_option
from delayq.cli.output import console, put_json, say

if TYPE_CHECKING:
    from delayq.cli.session import Session

_NEEDED = ("holidays", "tzdata")


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=30,
    show_default=True,
    help="How long the year takes.",
)
@click.option("--countries", metavar="CODES", help="Only these countries, such as PT,JP,BR.")
@click.option("--seed", default=0, show_default=True, help="Decides whose callbacks fail.")
@json_option
@click.pass_context
def demo(ctx: click.Context, *, seconds: float, countries: str | None, seed: int, as_json: bool) -> None:
    """See the queue at work: a year of the world's public holidays in half a minute.

    A reminder of each public holiday of every country, due at nine in the morning of the day before by the clocks
    there, is sent and delivered by two workers. In the middle of the year one of them is killed, and some callbacks
    fail. The account at the end tells whether all that was sent was delivered, and nothing early; if it does not add
    up, the exit code is 1.

    Runs on the Redis of --url or DELAYQ_URL, under a prefix of its own, and removes everything at the end. Without
    one it starts a redis-server for itself, and where there is none, it runs embedded, in one process.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise Failure(f"the demo needs the package {missing[0]}: pip install 'delayq[demo]'")
    from delayq.demo.reminders import UnknownCountryError
    from delayq.demo.run import DemoError, run_demo
    from delayq.demo.screen import Screen
    from delayq.demo.server import open_server
    from delayq.throwaway import ServerEndedError

    session: Session = ctx.obj
    output = console()
    output.quiet = as_json
    chosen = None if countries is None else [code.strip() for code in countries.split(",") if code.strip()]
    with interruption() as interrupted:
        try:
            with open_server(session.url, patience=session.timeout) as server:
                if as_json and server.embedded:
                    say(f"delayq: the demo runs on {server.label}")
                account = run_demo(
                    Screen(output), server, interrupted.event, seconds=seconds, countries=chosen, seed=seed
                )
        except UnknownCountryError as error:
            raise click.UsageError(str(error), ctx) from error
        except (DemoError, ServerEndedError) as error:
            raise Failure(str(error)) from error
    if as_json:
        put_json(account)
    if interrupted.number:
        ctx.exit(128 + interrupted.number)
    ctx.exit(0 if account.adds_up else 1)
