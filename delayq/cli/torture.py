"""`delayq torture`: the proof as a command. A workload under faults, drawn from a seed, and the verdict on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.engines import ENGINES
from delayq.cli.failure import Failure
from delayq.cli.interruption import interruption
from delayq.cli.options import json_option
from delayq.cli.output import console, put, put_json, say
from delayq.values import Command

if TYPE_CHECKING:
    from delayq.cli.session import Session
    from delayq.torture.place import Ground
    from delayq.torture.plan import Settings

FIGURES = (
    "kill=1000,stop=200,term=200,server-kill=200,power=50,replies=200000,cut=20000,flush=200,memory=100,disk=100,"
    "clock=100,slow-fsync=100"
)
"""The faults of the full run, as the handbook tells them; it has 5,000,000 messages."""
PING = Command(("PING",), bool)
FULL = {"messages": 5_000_000, "faults": FIGURES, "aof": "always,everysec", "lease": 3.0}


class _Torture(click.Group):
    """A group whose command `run` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take options without a command as those of `run`."""
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Torture)
def torture() -> None:
    """Run a workload under faults, and judge the history that its processes write.

    Without a command it is 'run': see 'delayq torture run --help'.
    """


@torture.command("run")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="delay",
    show_default=True,
    help="What kind of queue is put under torture.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides the workload and the faults.")
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="In all rounds.")
@click.option("--per-round", type=click.IntRange(1, 200_000), default=50_000, show_default=True, help="In a round.")
@click.option(
    "--faults",
    default="all",
    show_default=True,
    metavar="KINDS",
    help="all, none, or kinds such as kill=50,stop,replies=2000.",
)
@click.option(
    "--aof", default="always", show_default=True, metavar="POLICIES", help="always, everysec, no; several take turns."
)
@click.option("--lease", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, help="Seconds.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), help="How long the messages of a round are sent.")
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Worker processes.")
@click.option("--producers", type=click.IntRange(1, 64), default=2, show_default=True, help="Producer processes.")
@click.option("--full", is_flag=True, help="The figures of the handbook: five million messages; takes hours.")
@click.option("--round", "number", type=click.IntRange(1), metavar="K", help="Only this round, as a failed one says.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep all histories in this folder."
)
@click.option("--dry-run", is_flag=True, help="Show the plan of each round, and do nothing.")
@json_option
@click.pass_context
def run_(
    ctx: click.Context,
    /,
    *,
    number: int | None,
    keep: Path | None,
    dry_run: bool,
    as_json: bool,
    full: bool,
    **given: Any,
) -> None:
    """Send, process and inspect messages with real processes while faults are provoked; then judge every history.

    It starts its own redis-server; with --url it uses yours, under a prefix of its own, and does nothing to the server
    itself. Faults are drawn from the seed: the same command draws the same again. The exit code is 1 if a guarantee
    was broken; the history of that round is kept and the command that repeats it is printed.

    KINDS: kill, stop, term (of workers), replies, cut (of connections), server-kill, power, flush, memory, disk,
    clock, slow-fsync (of the server). A number after = says how many in all rounds.
    """
    from delayq.torture.plan import draw
    from delayq.torture.run import run
    from delayq.torture.screen import Screen

    output = console()
    output.quiet = as_json
    # A default of --full is one that neither the command line nor the environment has overruled.
    chosen = [name for name in given if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
    if full:
        given |= {name: value for name, value in _full(given["engine"]).items() if name not in chosen}
    session: Session = ctx.obj
    if session.url and not session.url.startswith("memory://"):
        session.executor.call(PING)
    with _folder(keep) as folder, interruption() as interrupted:
        ground, settings = _prepare(session.url, folder, **given)
        for sentence in ground.missing:
            say(f"delayq: {sentence}")
        rounds = [number] if number else list(range(1, settings.rounds + 1))
        if dry_run:
            plans = [draw(settings, one) for one in rounds]
            if as_json:
                put_json(plans)
            for line in () if as_json else (line for plan in plans for line in _lines(plan)):
                put(line)
            return
        with Screen(output) as screen:
            keeping = keep is not None
            account = run(settings, ground, screen, interrupted.event, rounds=rounds, folder=folder, keep=keeping)
        screen.account(account)
    if as_json:
        put_json(account)
    if interrupted.number:
        ctx.exit(128 + interrupted.number)
    ctx.exit(0 if account.right else 1)


@torture.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="HISTORY…")
@json_option
@click.pass_context
def check(ctx: click.Context, *, places: tuple[Path, ...], as_json: bool) -> None:
    """Judge histories: files, or folders of them; the exit code is 1 if a rule is broken.

    JSON: the verdict, with the violations and the least of the history that shows each.
    """
    from delayq.torture.checker import check as judge
    from delayq.torture.checker import tell
    from delayq.torture.history import HistoryError

    try:
        verdict = judge(places)
    except HistoryError as error:
        raise Failure(str(error)) from error
    if as_json:
        put_json(verdict)
    else:
        for line in tell(verdict):
            put(line)
    ctx.exit(0 if verdict.right else 1)


def _full(engine: str) -> dict[str, Any]:
    """Return the options of the full run, without the faults that an engine has nothing for."""
    from delayq.torture.promises import PROMISES

    lacks = PROMISES[engine].lacks
    faults = ",".join(fault for fault in FIGURES.split(",") if fault.partition("=")[0] not in lacks)
    return {**FULL, "faults": faults}


def _prepare(
    url: str | None, folder: Path, *, engine: str, aof: str, faults: str, **given: Any
) -> tuple[Ground, Settings]:
    """Return what can be done and what is to be done; `ConfigurationError` if the one is not enough for the other."""
    from delayq.torture.place import survey
    from delayq.torture.plan import Settings, read_aof, read_faults
    from delayq.torture.promises import PROMISES

    ground = survey(url, folder)
    policies, lacks = read_aof(aof), PROMISES[engine].lacks
    allowed = [kind for kind in ground.allowed if kind not in lacks]
    lacking = {kind: f"the {engine} engine has {why}" for kind, why in lacks.items()}
    counts = read_faults(faults, messages=given["messages"], allowed=allowed, aof=policies, lacking=lacking)
    seconds = given.pop("seconds") or 0.0
    return ground, Settings(engine=engine, faults=counts, aof=policies, seconds=seconds, **given)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder of a run: the one that is kept, or one that is gone at the end unless histories lie there."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="delayq-torture-", dir=keep))
    try:
        yield folder
    finally:
        from delayq.torture.run import tidy

        tidy(folder)


def _lines(plan: Any) -> Iterator[str]:
    yield f"round {plan.round}: {plan.messages:,} messages in {plan.seconds:g} s, AOF {plan.aof}"
    for fault in plan.faults:
        facts = [f"{fault.size:+,}" if fault.kind == "clock" else f"{fault.size}"] if fault.size != 1 else []
        facts += [f"for {fault.lasts:g} s"] if fault.lasts else []
        yield f"{fault.at:9.3f} s  {fault.kind:<12}{', '.join(facts)}".rstrip()
