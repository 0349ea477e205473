"""`delayq tour`: ten steps from a send to the dead letter and back, on an embedded server."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import NamedTuple

import click

from delayq.cli.support.exit_codes import CommandError, Exit

MODULE = "orders_app"
PROGRAM = """\
from delayq import DelayQueue, Reject

orders = DelayQueue("orders")
customers = {1: "Ada", 2: "Bo"}

@orders.callback
def ship(message):
    order = message.payload["order"]
    if order not in customers:
        raise Reject("no such customer")
    print("shipped to", customers[order])
"""
MENDED = PROGRAM.replace('2: "Bo"}', '2: "Bo", 13: "Cem"}')


class TourStep(NamedTuple):
    """What the tour says, then shows, then runs."""

    text: str
    commands: tuple[str, ...]
    program: str = ""
    """What `orders_app.py` contains from then on; '' to leave it."""


STEPS = (
    TourStep(
        "A program has a queue and a function. This is orders_app.py. Send an order; nobody need be there to take it.",
        ("delayq send orders '{\"order\": 1}'",),
        PROGRAM,
    ),
    TourStep(
        "Send one for later. An id of your own makes the send safe to repeat.",
        (
            "delayq send orders '{\"order\": 2}' --delay 2h --id order-2",
            "delayq send orders '{\"order\": 2}' --delay 2h --id order-2",
        ),
    ),
    TourStep("And one that will fail.", ("delayq send orders '{\"order\": 13}' --id order-13",)),
    TourStep("What waits, and until when?", ("delayq list orders",)),
    TourStep("Why does this one wait? Ask that at 3 a.m., too.", ("delayq why orders order-2",)),
    TourStep(
        "A worker processes what is due. With --burst it ends when that is done; without, it goes on until SIGTERM.",
        (f"delayq worker {MODULE} --burst",),
    ),
    TourStep(
        "Order 13 was rejected. Nothing is lost: it is in the dead letter, with its payload and the reason.",
        ("delayq dead list orders", "delayq show orders order-13"),
    ),
    TourStep(
        "Mend the program, and send the dead letter once more.", ("delayq dead redrive orders --all --yes",), MENDED
    ),
    TourStep(
        "Do not wait two hours for order 2.", ("delayq run-now orders order-2", f"delayq worker {MODULE} --burst")
    ),
    TourStep("All is done, and counted.", ("delayq stats orders", "delayq doctor orders")),
)
EXPECTED = (Exit.OK, Exit.UNHEALTHY)
"""The doctor of the last step may have something to say of an embedded server."""


@click.command()
@click.option("--no-wait", is_flag=True, help="Do not wait for Enter before each step.")
def tour(*, no_wait: bool) -> int:
    """Try delayq in a minute: ten steps from a send to the dead letter and back.

    Shows each command and runs it, on a server that is embedded in this process: nothing is installed, and nothing is
    left behind. Waits for Enter before each step, on a terminal.
    """
    if find_spec("fakeredis") is None:
        raise CommandError("the tour needs the package fakeredis: pip install 'delayq[embedded]'")
    waits = not no_wait and sys.stdin.isatty() and sys.stdout.isatty()
    url = f"memory://tour-{secrets.token_hex(4)}"
    with _folder() as write:
        for number, step in enumerate(STEPS, 1):
            click.echo(click.style(f"\n{number}/{len(STEPS)}  {step.text}", bold=True))
            if step.program:
                write(step.program)
                click.echo("\n" + indent(step.program, "    "))
            for command in step.commands:
                click.echo(click.style(f"$ {command}", fg="green"))
                if waits and not _goes_on():
                    return Exit.OK
                if (code := _run(url, command)) not in EXPECTED:
                    raise CommandError(f"this step of the tour has failed, with exit code {code}: {command}")
    click.echo("\nThat was the tour. Go on with: delayq docs tutorial")
    return Exit.OK


def _goes_on() -> bool:
    """Wait for Enter; return whether the tour goes on."""
    try:
        return click.prompt("Enter runs it, q ends the tour", default="", show_default=False, prompt_suffix=" ") != "q"
    except click.Abort:
        return False


@contextmanager
def _folder() -> Iterator[Callable[[str], None]]:
    """Work in a new folder; yields what writes the program there."""
    before, path = Path.cwd(), [*sys.path]
    with TemporaryDirectory() as folder:

        def write(program: str) -> None:
            Path(folder, f"{MODULE}.py").write_text(program, "utf-8")
            sys.modules.pop(MODULE, None)

        os.chdir(folder)
        try:
            yield write
        finally:
            os.chdir(before)
            sys.path[:] = path
            sys.modules.pop(MODULE, None)


def _run(url: str, command: str) -> int:
    """Run a command in this process, where the server is; returns its exit code."""
    from delayq.cli.app import main

    sys.stdout.flush()
    sys.path_importer_cache.pop(str(Path.cwd()), None)
    try:
        main(["--url", url, *shlex.split(command)[1:]])
    except SystemExit as ended:
        return int(ended.code or 0)
    return Exit.OK
