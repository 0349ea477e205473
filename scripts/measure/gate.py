"""Compares ratios with a baseline. Ratios are similar on all machines; seconds are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from measure.figure import Figure

MAX_FALL = 0.15
"""How far a ratio may fall: machines are noisy."""
MAX_RISE = 0.5
"""How far the ratio of a cost may rise: CPU times are noisier than rates."""
BASELINE = Path(__file__).with_name("baseline.json")


class BaselineError(Exception):
    """A baseline cannot be read."""


def read_baseline(path: Path) -> dict[str, float]:
    """Return the ratio of each figure in a baseline; raises `BaselineError`."""
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BaselineError(f"{path} is not JSON: {error}") from error
    ratios = found.get("ratios") if isinstance(found, dict) else None
    if not isinstance(ratios, dict) or not ratios:
        raise BaselineError(f'{path} has no "ratios"')
    for name, ratio in ratios.items():
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not ratio > 0:
            raise BaselineError(f"{path}: the ratio of {name} must be a number above 0, not {ratio!r}")
    return ratios


def write_baseline(path: Path, figures: list[Figure], setting: dict[str, Any]) -> None:
    """Write the measured ratios."""
    ratios = {figure.name: round(figure.ratio, 3) for figure in figures if figure.ratio is not None}
    path.write_text(json.dumps({**setting, "ratios": ratios}, indent=2) + "\n")


def compare(baseline: dict[str, float], figures: list[Figure], known: set[str]) -> list[str]:
    """Return a line for each rate that fell or cost that rose too far, and for each that is no longer `known`.

    Figures that were not measured in this run are ignored.
    """
    found = []
    measured = {figure.name: figure.ratio for figure in figures}
    costs = {figure.name for figure in figures if figure.cost}
    for name, before in baseline.items():
        now = measured.get(name)
        if name not in known:
            found.append(f"{name}: in the baseline, but nothing measures it")
        elif name in measured and now is None:
            found.append(f"{name}: in the baseline, but has no ratio any more")
        elif now is not None and name in costs and now > before * (1 + MAX_RISE):
            found.append(f"{name}: {now:.2f}, was {before:.2f}: rose by {now / before - 1:.0%}")
        elif now is not None and name not in costs and now < before * (1 - MAX_FALL):
            found.append(f"{name}: {now:.2f}, was {before:.2f}: fell by {1 - now / before:.0%}")
    return found
