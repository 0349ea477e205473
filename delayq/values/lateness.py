"""How late messages start, in buckets, and objectives for it such as `"99% within 1s"`."""

from __future__ import annotations

import re
from typing import NamedTuple

from delayq.errors import ConfigurationError, short_repr
from delayq.values.text import format_duration
from delayq.values.times import to_millis

LATENESS_BOUNDS = (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
"""The upper ends (ms) of the buckets in which lateness is counted, about logarithmic; the last bucket has none."""
NO_SLO = "off"
_SLO = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?% within (\S{1,20})")


class LatenessSlo(NamedTuple):
    """An objective: which share of the messages, below 1, is to start within how many milliseconds."""

    share: float
    within: int


def read_slo(text: str) -> LatenessSlo:
    """Return an objective; raises `ConfigurationError`."""
    found = _SLO.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigurationError(f"lateness_slo must look like '99% within 1s', not {short_repr(text)}")
    share = float(found[1]) / 100
    if not 0 < share < 1:
        raise ConfigurationError(f"lateness_slo must be above 0% and below 100%, not {short_repr(text)}")
    within = to_millis(found[2], "lateness_slo")
    if within not in LATENESS_BOUNDS:
        *known, last = (format_duration(bound / 1000) for bound in LATENESS_BOUNDS)
        allowed = f"{', '.join(known)} or {last}, as lateness is counted"
        raise ConfigurationError(f"lateness_slo must be within {allowed}, not {short_repr(text)}")
    return LatenessSlo(share, within)


def check_slo(text: str | None) -> str | None:
    """Return the text of an objective, or 'off', as it is; raises `ConfigurationError` for any other but None."""
    if text is not None and text != NO_SLO:
        read_slo(text)
    return text
