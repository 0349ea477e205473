"""Runs the rounds one after another, keeps the histories of those that failed, and adds up the results."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import msgspec

from delayq.testing.torture.disturbing.environment import Capabilities
from delayq.testing.torture.round import Round
from delayq.testing.torture.round_plan import RunSettings, draw_round
from delayq.testing.torture.run_tally import RoundTally, RunTally, tally_rounds
from delayq.testing.torture.torture_screen import TortureScreen


def tidy(folder: Path) -> None:
    """Remove the folder of a run, except for histories that were kept."""
    for file in folder.glob("shim.*"):
        file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def command_of(settings: RunSettings, number: int | None = None) -> str:
    """Return the command that repeats a run or one of its rounds."""
    faults = ",".join(f"{kind}={count}" for kind, count in settings.faults.items()) or "none"
    words = [
        f"delayq torture --seed {settings.seed} --messages {settings.messages}",
        f"--per-round {settings.per_round} --faults {faults} --aof {','.join(settings.aof)} --lease {settings.lease:g}",
        f"--workers {settings.workers} --producers {settings.producers}",
    ]
    words += [f"--seconds {settings.seconds:g}"] if settings.seconds else []
    words += [f"--round {number}"] if number else []
    return " ".join(words)


def run(
    settings: RunSettings,
    capabilities: Capabilities,
    screen: TortureScreen,
    interrupted: threading.Event,
    *,
    rounds: list[int],
    folder: Path,
    keep: bool,
) -> RunTally:
    """Run the rounds, each with its histories in a subfolder of `folder`; delete those of a round that was right.

    With `keep`, all histories are kept.
    """
    began = time.monotonic()
    done: list[RoundTally] = []
    for number in rounds:
        if interrupted.is_set():
            break
        plan = draw_round(settings, number)
        histories = folder / f"round-{number}"
        histories.mkdir(parents=True)
        screen.begin(plan, settings.rounds)
        try:
            tally = Round(settings, plan, capabilities, histories, screen).run(interrupted)
        except BaseException:
            shutil.rmtree(histories, ignore_errors=True)
            raise
        if keep or not tally.right:
            (histories / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
            tally = msgspec.structs.replace(tally, kept=str(histories))
        else:
            shutil.rmtree(histories)
        done.append(tally)
        screen.end(tally)
    only = rounds[0] if len(rounds) == 1 < settings.rounds else None
    return tally_rounds(command_of(settings, only), done, time.monotonic() - began, interrupted=interrupted.is_set())
