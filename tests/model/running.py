"""Runs the state machine: how many steps, and how Hypothesis chooses them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, cast

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.stateful import run_state_machine_as_test

from delayq.broker.transport.executor import Executor, open_executor
from delayq.options import QueueOptions, read_settings
from tests.model.traps import TrapMachine

STEPS_PER_EXAMPLE = 100


@contextmanager
def unmeasured() -> Iterator[None]:
    """Measuring coverage would double the time, and other tests show what is covered."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


@contextmanager
def connected(url: str, **settings: Any) -> Iterator[Executor]:
    executor = open_executor({"url": url}, read_settings(cast("QueueOptions", settings)))
    yield executor
    executor.close()


def run(executor: Executor, steps: int, reached: Counter[str] | None = None, *, shrink: bool = True) -> None:
    """Play about so many steps; raises what the first failing example raised, told as short as can be."""
    settings = hypothesis.settings(
        max_examples=steps // STEPS_PER_EXAMPLE,
        stateful_step_count=STEPS_PER_EXAMPLE,
        # Draws at random: Hypothesis's own way runs most examples as variants of a few, and meets less.
        backend="hypothesis-urandom",
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        report_multiple_bugs=False,
        print_blob=True,
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    met = Counter() if reached is None else reached
    with unmeasured(), TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)  # Hypothesis keeps files even without a database
        try:
            run_state_machine_as_test(lambda: TrapMachine(executor, met), settings=settings)
        finally:
            set_hypothesis_home_dir(None)
