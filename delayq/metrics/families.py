"""The metric families of one scrape, and all that delayq takes from prometheus-client."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, islice
from typing import NamedTuple

from delayq import __version__
from delayq.errors import ConfigurationError

try:
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import choose_encoder as choose_library_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families as read_families
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise ConfigurationError("metrics need the extra: pip install 'delayq[prometheus]'") from error

__all__ = ["REGISTRY", "Collector", "Families", "Metric", "choose_encoder", "read_families"]

Series = tuple[tuple[str, "Labels"], ...]
"""The samples of a row: the name of each, and the labels that it has besides those of the row."""
Labels = tuple[tuple[str, str], ...]
_About = tuple[str, str, str]
"""The name, the documentation and the kind of a family."""
Encoder = Callable[[Collector], bytes]
_number_text: Callable[[float], str] = floatToGoString
_integer_text = lru_cache(4096)(_number_text)
"""Most numbers of queues are small integers, and most of these are 0."""


class _Family(NamedTuple):
    """A family, as rows of samples that share labels. A list for each column makes the garbage collector no work."""

    documentation: str
    kind: str
    series: list[Series]
    labels: list[Labels]
    values: list[float]
    """As many for each row as it has samples."""

    def rows(self) -> Iterator[tuple[Series, Labels, list[float]]]:
        """Yield the samples of each row, their labels, and their values."""
        values = iter(self.values)
        for series, labels in zip(self.series, self.labels, strict=True):
            yield series, labels, [*islice(values, len(series))]


class Families:
    """Families by name; a sample makes its family if there is none yet.

    The samples of 10,000 queues are half a million. So they are kept as rows, and `encode` makes their text at once;
    only who iterates over the families, as a registry does, gets an object for each.
    """

    def __init__(self) -> None:
        """Start with no family."""
        self._families: dict[str, _Family] = {}
        self._known: dict[Labels, Labels] = {}
        """The labels of all rows: a queue has the same in many families."""

    def __iter__(self) -> Iterator[Metric]:
        """Iterate over the families, in the order of their first samples."""
        for name, family in self._families.items():
            metric = Metric(name, family.documentation, family.kind)
            for series, labels, values in family.rows():
                for (sample, more), value in zip(series, values, strict=True):
                    metric.add_sample(sample, dict(labels + more), value)
            yield metric

    def add_build(self) -> None:
        """Add the versions of delayq and Python."""
        python = platform.python_version()
        self.gauge("delayq_build_info", "The versions of delayq and Python", 1, version=__version__, python=python)

    def gauge(self, name: str, documentation: str, value: float, /, **labels: str) -> None:
        """Add a number that may grow and shrink."""
        self._add((name, documentation, "gauge"), _single(name), labels, (value,))

    def gauges(self, name: str, documentation: str, by: str, values: Mapping[str, float], /, **labels: str) -> None:
        """Add numbers that may grow and shrink, each with its key as the label `by`."""
        series = _series(name, by, tuple(values))
        self._add((name, documentation, "gauge"), series, labels, values.values())

    def counter(self, name: str, documentation: str, value: float, /, **labels: str) -> None:
        """Add a number that only grows; its name ends with `_total`."""
        self._add((name.removesuffix("_total"), documentation, "counter"), _single(name), labels, (value,))

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
        series, values = _buckets(name, tuple(bounds), has_sum=seconds is not None), list[float](accumulate(numbers))
        if seconds is not None:
            values += values[-1], seconds
        self._add((name, documentation, "histogram"), series, labels, values)

    def merge(self, family: Metric, **labels: str) -> None:
        """Add the samples of a family of another process, with more labels."""
        for one in family.samples:
            every = {**labels, **one.labels}
            self._add((family.name, family.documentation, family.type), _single(one.name), every, (one.value,))

    def _add(self, about: _About, series: Series, labels: Mapping[str, str], values: Collection[float]) -> None:
        name, documentation, kind = about
        if len(series) != len(values):
            raise ValueError(f"{name} has {len(values)} numbers for {len(series)} samples")
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(documentation, kind, [], [], [])
        given = tuple(labels.items())
        family.series.append(series)
        family.labels.append(self._known.setdefault(given, given))
        family.values.extend(values)

    def encode(self, encode: Encoder) -> bytes:
        """Return the text that an encoder of prometheus-client would make; it makes that of all but the samples."""
        texts: list[str] = []
        end = encode(_Given()).decode()
        for name, family in self._families.items():
            texts.append(encode(_Given(Metric(name, family.documentation, family.kind))).decode().removesuffix(end))
            texts += _sample_lines(family)
        return "".join([*texts, end]).encode()


class _Given(Collector):
    """Collects what is given."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


@lru_cache(1024)
def _single(name: str) -> Series:
    return ((name, ()),)


@lru_cache(64)
def _series(name: str, by: str, keys: tuple[str, ...]) -> Series:
    return tuple([(name, ((by, key),)) for key in keys])


@lru_cache(64)
def _buckets(name: str, bounds: tuple[float, ...], *, has_sum: bool) -> Series:
    """Return the buckets of a histogram, with an end each, and what they add up to."""
    series = _series(f"{name}_bucket", "le", (*map(floatToGoString, bounds), "+Inf"))
    return (*series, (f"{name}_count", ()), (f"{name}_sum", ())) if has_sum else series


def _sample_lines(family: _Family) -> Iterator[str]:
    """Yield the lines of each row. Rows that differ in the values of labels and samples alone share a template."""
    templates: dict[tuple[Series, tuple[str, ...]], str] = {}
    for series, labels, values in family.rows():
        ordered = sorted(labels) if len(labels) > 1 else labels
        shape = series, tuple([name for name, _ in ordered])
        if shape not in templates:
            templates[shape] = "".join([_template(*one, shape[1]) for one in series])
        own = [_escaped(text) for _, text in ordered]
        words: list[str] = []
        for value in values:
            words += own
            words.append(_integer_text(value) if value.__class__ is int else _number_text(value))
        yield templates[shape] % tuple(words)


def _template(name: str, more: Sequence[tuple[str, str]], labels: Sequence[str]) -> str:
    """Return the line of a sample, with `%s` for the values of `labels` in their order, and for its own."""
    texts = dict.fromkeys(labels, "%s") | {label: _escaped(value).replace("%", "%%") for label, value in more}
    inside = ",".join([f'{label}="{texts[label]}"' for label in sorted(texts)])
    return f"{name}{{{inside}}} %s\n" if inside else f"{name} %s\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _encode(collector: Collector, encode: Encoder) -> bytes:
    found = collector.collect()
    return found.encode(encode) if isinstance(found, Families) else encode(_Given(*found))


def choose_encoder(accept: str) -> tuple[Encoder, str]:
    """Return what makes the text of a collector that a client accepts, as prometheus-client does, and its type."""
    encode, content_type = choose_library_encoder(accept)
    return partial(_encode, encode=encode), content_type
