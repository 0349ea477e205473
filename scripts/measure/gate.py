"""Compares ratios and counts with a baseline. They are similar on all machines; seconds are not.

Ratios are of a whole run, counts of a run with `--counted`: commands and round trips a message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from measure.figure import Figure

MAX_FALL = 0.15
"""How far a ratio may fall: machines are noisy."""
MAX_RISE = 0.5
"""How far the ratio of a cost may rise: CPU times are noisier than rates."""
SMALL_RISE = 0.01
"""By how much a count may rise in any case: in bulk there are few commands a message."""
BASELINE = Path(__file__).with_name("baseline.json")


class BaselineError(Exception):
    """A baseline cannot be read."""


def read_baseline(path: Path, *, counted: bool = False) -> dict[str, float]:
    """Return the ratio of each figure in a baseline, or the counts; raises `BaselineError`."""
    kind, what = ("counts", "count") if counted else ("ratios", "ratio")
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BaselineError(f"{path} is not JSON: {error}") from error
    values = found.get(kind) if isinstance(found, dict) else None
    if not isinstance(values, dict) or not values:
        raise BaselineError(f'{path} has no "{kind}"')
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise BaselineError(f"{path}: the {what} of {name} must be a number above 0, not {value!r}")
    return values


def write_baseline(path: Path, figures: list[Figure], setting: dict[str, Any]) -> None:
    """Write the measured ratios; counts stay."""
    ratios = {figure.name: round(figure.ratio, 3) for figure in figures if figure.ratio is not None}
    _write(path, {**setting, "ratios": ratios, "counts": _read(path).get("counts", {})})


def write_counts(path: Path, figures: list[Figure]) -> None:
    """Write the measured counts; ratios stay."""
    _write(path, {**_read(path), "counts": {figure.name: round(figure.median, 4) for figure in figures}})


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


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


def compare_counts(baseline: dict[str, float], figures: list[Figure], known: set[str]) -> list[str]:
    """Return a line for each count that rose, that is no longer `known`, or that the baseline does not have."""
    found = [f"{name}: in the baseline, but nothing counts it" for name in baseline if name not in known]
    for figure in figures:
        now, before = figure.median, baseline.get(figure.name)
        if before is None:
            found.append(f"{figure.name}: {now:.4g}, not in the baseline")
        elif now > before * (1 + (figure.may_rise or 0.0)) and now > before + SMALL_RISE:
            found.append(f"{figure.name}: {now:.4g}, was {before:.4g}: rose by {now / before - 1:.0%}")
    return found
