"""`delayq torture`: run a workload under faults drawn from a seed, and check the guarantees."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.requests import RedisCommand
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import json_option
from delayq.cli.support.output import console, print_json, print_note, print_result
from delayq.cli.support.progress import catch_stop_signals

if TYPE_CHECKING:
    from delayq.cli.support.session import Session
    from delayq.testing.torture.disturbing.environment import Capabilities
    from delayq.testing.torture.round_plan import RunSettings

FIGURES = (
    "kill=1000,stop=200,term=200,server-kill=200,power=50,replies=200000,cut=20000,flush=200,memory=100,disk=100,"
    "clock=100,slow-fsync=100,exit=200,refuse=100,password=100,foreign=100,flushall=10,pause=200"
)
"""The faults of the full run, as in the handbook; it has 5,000,000 messages."""
FULL = {"messages": 5_000_000, "faults": FIGURES, "aof": "always,everysec", "lease": 3.0}


class _Torture(SuggestingGroup):
    """A group whose default command is `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat options without a command as options of `run`."""
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Torture)
def torture() -> None:
    """Run a workload under faults, and check the history that its processes record.

    Without a command, 'run' is executed: see 'delayq torture run --help'.
    """


@torture.command("run")
@click.option("--seed", type=int, default=0, help="Determines the workload and the faults.")
@click.option("--messages", type=click.IntRange(1), default=20_000, help="Messages in all rounds.")
@click.option("--per-round", type=click.IntRange(1, 200_000), default=50_000, help="Messages per round.")
@click.option("--faults", default="all", metavar="KINDS", help="all, none, or such as kill=50,replies=2000.")
@click.option("--aof", default="always", metavar="POLICIES", help="always, everysec or no; several take turns.")
@click.option("--lease", type=click.FloatRange(0.5, 60), default=2.0, help="Lease in seconds.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), help="Send the messages of a round for this long.")
@click.option("--plain", is_flag=True, help="Use no limits, priorities, breakers and successors.")
@click.option(
    "--partitions", type=click.IntRange(1, 64), default=1, help="Spread the queue over so many; with --plain."
)
@click.option("--workers", type=click.IntRange(1, 64), default=4, help="Worker processes.")
@click.option("--producers", type=click.IntRange(1, 64), default=2, help="Producer processes.")
@click.option("--full", is_flag=True, help="Run the five million messages of the handbook; takes hours.")
@click.option("--round", "number", type=click.IntRange(1), metavar="K", help="Run only this round.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep all histories in this folder."
)
@click.option("--dry-run", is_flag=True, help="Show the plan of each round and exit.")
@json_option
@click.pass_context
def run_(
    ctx: click.Context, /, number: int | None, keep: Path | None, *, dry_run: bool, as_json: bool, **options: Any
) -> int:
    """Send, process and inspect messages with real processes under faults; then check every history.

    Starts its own redis-server. With --url, uses yours under a prefix of its own, and causes no faults of the server.
    Faults are drawn from the seed: the same command plans the same faults. The exit code is 1 if a guarantee was
    broken; the history of that round is kept, and the command that repeats it is printed.

    KINDS: kill, stop, term, exit (workers); replies, cut, refuse (connections); server-kill, power, flush, flushall,
    memory, disk, clock, slow-fsync, password, foreign, pause (server). A number after = is the count in all rounds.
    """
    from delayq.testing.torture.round_plan import draw_round
    from delayq.testing.torture.runner import run
    from delayq.testing.torture.torture_screen import TortureScreen

    output = console()
    output.quiet = as_json
    if options.pop("full"):
        options |= _full(ctx)
    session: Session = ctx.obj
    if session.url and not session.url.startswith("memory://"):
        session.executor.call(RedisCommand(("PING",), bool))  # fails here if Redis cannot be reached
    with _folder(keep) as folder, catch_stop_signals() as interrupted:
        capabilities, settings = _prepare(session.url, folder, **options)
        for sentence in capabilities.missing:
            print_note(f"delayq: {sentence}")
        rounds = [number] if number else list(range(1, settings.rounds + 1))
        if dry_run:
            plans = [draw_round(settings, one) for one in rounds]
            print_result(plans, *chain.from_iterable(map(_lines, plans)), as_json=as_json)
            return Exit.OK
        with TortureScreen(output) as screen:
            keeping = keep is not None
            tally = run(settings, capabilities, screen, interrupted.event, rounds=rounds, folder=folder, keep=keeping)
        screen.summary(tally)
    if as_json:
        print_json(tally)
    return interrupted.exit_code(right=tally.right)


@torture.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="HISTORY…")
@json_option
def check(*, paths: tuple[Path, ...], as_json: bool) -> Exit:
    """Check histories: files, or folders of them. The exit code is 1 if a rule is broken.

    JSON: the result, with the violations and the shortest part of the history that shows each.
    """
    from delayq.testing.torture.rules.checker import check as check_histories
    from delayq.testing.torture.rules.checker import report_lines

    result = check_histories(paths)
    print_result(result, *report_lines(result), as_json=as_json)
    return Exit.OK if result.right else Exit.FAILURE


def _full(ctx: click.Context) -> dict[str, Any]:
    """Return the options of the full run, except those that the command line or the environment has set."""
    by_default = click.core.ParameterSource.DEFAULT
    return {name: value for name, value in FULL.items() if ctx.get_parameter_source(name) is by_default}


def _prepare(
    url: str | None, folder: Path, *, aof: str, faults: str, **options: Any
) -> tuple[Capabilities, RunSettings]:
    """Return the capabilities and the settings; raise `ConfigurationError` for a fault that is not possible."""
    from delayq.testing.torture.disturbing.environment import detect_capabilities
    from delayq.testing.torture.round_plan import OF_PLAIN_QUEUES, RunSettings, read_aof, read_faults

    capabilities = detect_capabilities(url, folder)
    policies = read_aof(aof)
    allowed = capabilities.allowed
    if options["partitions"] > 1:
        options["plain"], allowed = True, tuple(kind for kind in allowed if kind not in OF_PLAIN_QUEUES)
    counts = read_faults(faults, messages=options["messages"], allowed=allowed, aof=policies)
    seconds = options.pop("seconds") or 0.0
    return capabilities, RunSettings(faults=counts, aof=policies, seconds=seconds, **options)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder of a run; it is removed at the end unless it contains histories."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="delayq-torture-", dir=keep))
    try:
        yield folder
    finally:
        from delayq.testing.torture.runner import tidy

        tidy(folder)


def _lines(plan: Any) -> Iterator[str]:
    yield f"round {plan.round}: {plan.messages:,} messages in {plan.seconds:g} s, AOF {plan.aof}"
    for fault in plan.faults:
        facts = [f"{fault.size:+,}" if fault.kind == "clock" else f"{fault.size}"] if fault.size != 1 else []
        facts += [f"for {fault.lasts:g} s"] if fault.lasts else []
        yield f"{fault.at:9.3f} s  {fault.kind:<12}{', '.join(facts)}".rstrip()
