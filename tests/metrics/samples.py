"""Reading what a collector returns."""

from __future__ import annotations

from typing import Any


def samples_of(collector: Any) -> dict[str, float]:
    """Return the values of all samples, by what Prometheus would call them: `delayq_workers{queue="a"}`."""
    found: dict[str, float] = {}
    for family in collector.collect():
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = float(sample.value)
    return found


def names_of(collector: Any) -> set[str]:
    """Return the names of all samples."""
    return {sample.name for family in collector.collect() for sample in family.samples}
