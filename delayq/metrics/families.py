"""The metric families of one scrape, and all that delayq takes from prometheus-client."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from itertools import accumulate

from delayq import __version__
from delayq.errors import ConfigurationError

try:
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families as read_families
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise ConfigurationError("metrics need the extra: pip install 'delayq[prometheus]'") from error

__all__ = ["REGISTRY", "Collector", "Families", "Metric", "choose_encoder", "read_families"]


class Families:
    """Families by name; a sample makes its family if there is none yet."""

    def __init__(self) -> None:
        """Start with no family."""
        self._families: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        """Iterate over the families, in the order of their first samples."""
        return iter(self._families.values())

    def add_build(self) -> None:
        """Add the versions of delayq and Python."""
        python = platform.python_version()
        self.gauge("delayq_build_info", "The versions of delayq and Python", 1, version=__version__, python=python)

    def gauge(self, name: str, documentation: str, value: float, /, **labels: str) -> None:
        """Add a number that may grow and shrink."""
        self._family(name, documentation, "gauge").add_sample(name, labels, value)

    def counter(self, name: str, documentation: str, value: float, /, **labels: str) -> None:
        """Add a number that only grows; its name ends with `_total`."""
        self._family(name.removesuffix("_total"), documentation, "counter").add_sample(name, labels, value)

    def histogram(
        self,
        name: str,
        documentation: str,
        bounds: Sequence[float],
        numbers: Sequence[int],
        seconds: float | None = None,
        /,
        **labels: str,
    ) -> None:
        """Add how many were observed in each bucket: at most each bound, and more than the last one.

        `seconds` is their sum. If it is not known, there is no count either: OpenMetrics has both or none.
        """
        family = self._family(name, documentation, "histogram")
        ends = [*map(floatToGoString, bounds), "+Inf"]
        total = 0
        for end, total in zip(ends, accumulate(numbers), strict=True):
            family.add_sample(f"{name}_bucket", {**labels, "le": end}, total)
        if seconds is not None:
            family.add_sample(f"{name}_count", labels, total)
            family.add_sample(f"{name}_sum", labels, seconds)

    def merge(self, family: Metric, **labels: str) -> None:
        """Add the samples of a family of another process, with more labels."""
        ours = self._family(family.name, family.documentation, family.type)
        for sample in family.samples:
            ours.add_sample(sample.name, {**labels, **sample.labels}, sample.value)

    def _family(self, name: str, documentation: str, kind: str) -> Metric:
        if name not in self._families:
            self._families[name] = Metric(name, documentation, kind)
        return self._families[name]
