"""The run: round after round, the histories of those that failed kept, and an account of all."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from pathlib import Path
from typing import Protocol

import msgspec

from delayq.torture.account import Account, RoundAccount, add_up
from delayq.torture.place import Ground
from delayq.torture.plan import Plan, Settings, draw
from delayq.torture.round import Audience, Round


def tidy(folder: Path) -> None:
    """Remove the folder of a run, but for the histories that were kept."""
    for file in folder.glob("shim.*"):
        file.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


class RunAudience(Audience, Protocol):
    """Who is told of rounds as well."""

    def begin(self, plan: Plan, rounds: int) -> None:
        """A round begins."""

    def end(self, account: RoundAccount) -> None:
        """A round is over."""


def command_of(settings: Settings, number: int | None = None) -> str:
    """Return the command that repeats a run, or one round of it."""
    faults = ",".join(f"{kind}={many}" for kind, many in settings.faults.items()) or "none"
    engine = "" if settings.engine == "delay" else f" --engine {settings.engine}"
    words = [
        f"delayq torture{engine} --seed {settings.seed} --messages {settings.messages}",
        f"--per-round {settings.per_round} --faults {faults} --aof {','.join(settings.aof)} --lease {settings.lease:g}",
        f"--workers {settings.workers} --producers {settings.producers}",
    ]
    if settings.seconds:
        words.append(f"--seconds {settings.seconds:g}")
    return " ".join([*words, *([f"--round {number}"] if number else [])])


def run(
    settings: Settings,
    ground: Ground,
    audience: RunAudience,
    interrupted: threading.Event,
    *,
    rounds: list[int],
    folder: Path,
    keep: bool,
) -> Account:
    """Carry out rounds, each with its histories in a folder of its own below `folder`; returns the account of all.

    Histories of rounds that were right are deleted unless they are to be kept.
    """
    began = time.monotonic()
    done: list[RoundAccount] = []
    for number in rounds:
        if interrupted.is_set():
            break
        plan = draw(settings, number)
        place = folder / f"round-{number}"
        place.mkdir(parents=True)
        audience.begin(plan, settings.rounds)
        queue = f"torture-{secrets.token_hex(4)}-{number}"
        try:
            account = Round(settings, plan, ground, folder=place, queue=queue, audience=audience).run(interrupted)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        if keep or not account.right:
            (place / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
            account = msgspec.structs.replace(account, kept=str(place))
        else:
            shutil.rmtree(place)
        done.append(account)
        audience.end(account)
    which = rounds[0] if len(rounds) == 1 < settings.rounds else None
    return add_up(command_of(settings, which), done, time.monotonic() - began, interrupted=interrupted.is_set())
