"""Processes beside a measurement: each is a module of this folder, run as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

Program = subprocess.Popen[str]


def start(module: str, *words: object) -> Program:
    """Start a module of this folder with these arguments; its input and output are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", f"measure.{module}", *map(str, words)],
        cwd=Path(__file__).resolve().parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def await_ready(program: Program) -> None:
    """Wait until a program has printed "ready"; raise `RuntimeError` if it prints anything else or ends."""
    if read_line(program) != "ready\n":
        raise RuntimeError(f"{program.args!r} did not start")


def read_line(program: Program) -> str:
    """Return the next line that a program prints; '' if it has ended."""
    return "" if program.stdout is None else program.stdout.readline()
