"""Charts of columns: the values and times that their axes name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from delayq.web.shown.charts import MAX_TICKS, Column, columns, highest_of, ticks
from tests.support.visitor import text_of

START = datetime(2027, 1, 30, 9, tzinfo=UTC)
STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


@pytest.mark.table(
    "highest, top",
    [(0, 1), (1, 1), (2, 2), (3, 4), (5, 6), (7, 8), (10, 10), (11, 20), (99, 100), (1718, 2000), (0.5, 1)],
)
def test_axis_ends_at_a_round_value(highest, top):
    assert highest_of([highest, 0]) == top


@pytest.mark.table(
    "unit, number, texts",
    [
        ("minute", 61, ["09:00", "09:15", "09:30", "09:45", "10:00"]),
        ("hour", 24, ["12:00", "18:00", "31 Jan", "06:00"]),
        ("hour", 48, ["12:00", "31 Jan", "12:00", "1 Feb"]),
        ("hour", 73, ["31 Jan", "1 Feb", "2 Feb"]),
        ("day", 7, ["30 Jan", "1 Feb", "3 Feb", "5 Feb"]),
        ("day", 31, ["30 Jan", "6 Feb", "13 Feb", "20 Feb", "27 Feb"]),
    ],
)
def test_axis_names_round_times_and_few(unit, number, texts):
    found = ticks(unit, [START + n * STEPS[unit] for n in range(number)])
    assert [text for _, text in found] == texts
    assert len(found) <= MAX_TICKS


def test_values_times_and_unit_are_texts_of_the_page():
    chart = columns("Messages", "hour", [Column(START + n * STEPS["hour"], (n * 100, 50)) for n in range(24)])
    assert "Messages in each hour" in chart
    assert re.findall(r"<span>(.*?)</span>", chart) == ["4,000", "2,000", "0"]
    assert re.findall(r'<text x="(.*?)%".*?>(.*?)</text>', chart) == [
        ("12.50", "12:00"),
        ("37.50", "18:00"),
        ("62.50", "31 Jan"),
        ("87.50", "06:00"),
    ]
    assert "<title>Sat 30 Jan 10:00: 150</title>" in chart
    assert "style=" not in chart  # the policy of the page allows none


def test_pages_with_a_chart_name_its_axes(full, visit):
    for path, unit in (
        ("/queue?queue=orders", "Attempts in each hour 4 2 0"),
        ("/forecast?queue=orders&until=1h", "Messages in each minute"),
    ):
        if "forecast" in path:
            full.send("soon", delay="30m")
        page = visit().get(path)
        assert unit in text_of(page), path
        assert len(re.findall(r"<text ", page.text)) in range(3, MAX_TICKS + 1), path
