"""The text of many samples is made at once, and is what prometheus-client makes of them."""

from __future__ import annotations

import pytest
from prometheus_client import Metric, exposition

from delayq.metrics.families import Families, choose_encoder

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ODD = 'a "quoted" \\ 100 %s\nvalue'


class Given:
    def __init__(self, families):
        self.families = families

    def collect(self):
        return self.families


def filled():
    families = Families()
    families.add_build()
    for queue in ("one", "two", ODD):
        families.gauge("some_gauge", "A 'gauge' \\ of\ntwo lines", 1.5, queue=queue)
        families.gauges("some_states", "By state", "state", {"ready": 12_345_678, ODD: 0, "z": True}, queue=queue)
        families.counter("some_total", "A counter", 3, zone="x", name=queue)
        families.histogram("some_seconds", "A histogram", [0.5, 1, 3600], [1, 0, 2, 5], 7.25, queue=queue)
        families.histogram("other_seconds", "Without a sum", (1, 2), [1, 2, 3], queue=queue)
    families.gauge("bare", "Without labels", float("nan"))
    families.gauge("bare", "Without labels", -0.0, le="x")
    other = Metric("merged", "Of another process", "counter")
    for value in (float("inf"), -1, 1e300):
        other.add_sample("merged_total", {"b": ODD, "q": "y"}, value)
    families.merge(other, process="1")
    return families


@pytest.mark.parametrize(
    "accept", ["", OPENMETRICS, f"{OPENMETRICS}; escaping=allow-utf-8", "text/plain; version=1.0.0"]
)
def test_it_is_the_text_of_the_library(accept):
    encode, content_type = choose_encoder(accept)
    expected, expected_type = exposition.choose_encoder(accept)
    assert encode(Given(filled())) == expected(Given([*filled()]))
    assert encode(Given(iter(filled()))) == expected(Given([*filled()]))
    assert content_type == expected_type


def test_numbers_that_do_not_fit_their_samples_are_refused():
    with pytest.raises(ValueError, match="some_seconds has 1 numbers for 3 samples"):
        Families().histogram("some_seconds", "A histogram", [1, 2], [1])
