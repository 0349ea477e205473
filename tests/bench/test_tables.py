"""Tables of results, and their place in README and handbook."""

import bench
import pytest
from measure import pages, report
from measure.figure import Figure, Reading, Results, at_least, at_most
from measure.report import Setting, missed, shown

SETTING = Setting("2026-11-20", 2, "A Processor", "7.0.15", "3.11.7", 5)


def figure(name, value, other=None, **options):
    made = Figure(name, name, **options)
    made.add(Reading(name, value, other))
    return made


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (123_456, "/s", "123,000/s"),
        (9_876.5, "/s", "9,880/s"),
        (0.8123, " ms", "0.812 ms"),
        (1.5, " ms", "1.5 ms"),
        (2.004, "/s", "2/s"),
        (0, "", "0"),
        (299.6, " B", "300 B"),
        (0.0091, "", "0.0091"),
    ],
)
def test_values_have_three_significant_digits(value, unit, text):
    assert shown(value, unit) == text


def test_whole_table_has_a_row_for_every_figure():
    figures = [figure("send", 8.0, 10.0, goal=at_least(0.85)), figure("idle", 2.0, unit="/s")]
    text = report.whole_table(Results(figures, {}, {}), SETTING)
    assert text.splitlines()[-2:] == [
        "| send | 8/s | 8 | raw 10/s | 0.80 | ≥ 0.85 of raw |",
        "| idle | 2/s | 2 |  |  |  |",
    ]
    assert "Measured by `make bench` on 2026-11-20, 2 cores (A Processor), Redis 7.0.15, Python 3.11.7" in text


def test_short_table_has_a_row_for_each_selected_figure():
    figures = [
        figure("send_many", 8.0, 10.0, goal=at_least(0.85)),
        figure("lateness_1000_p99", 0.8, unit=" ms", goal=at_most(1, " ms")),
        figure("idle", 2.0, unit="/s"),
    ]
    text = report.short_table(Results(figures, {"depth": "10 M pending: no room"}, {}), SETTING)
    assert text.splitlines()[-2:] == [
        "| lateness_1000_p99 | 0.8 ms |  | ≤ 1 ms |",
        "| send_many | 8/s | 0.80 of raw | ≥ 0.85 of raw |",
    ]
    assert "Left out: 10 M pending: no room." in " ".join(text.splitlines())


def test_short_table_has_only_measured_figures_and_short_lines():
    known = {one.name for measurement in bench.measurements() for one in measurement.figures}
    assert set(report.SHORT) <= known
    assert len(report.SHORT) <= 14
    figures = [one for measurement in bench.measurements() for one in measurement.figures]
    for one in figures:
        one.add(Reading(one.name, 123_456.7, 100_000.0))
    assert max(map(len, report.short_table(Results(figures, {}, {}), SETTING).splitlines())) <= 160


def test_names_of_figures_and_measurements_are_unique():
    every = bench.measurements()
    names = [one.name for one in every]
    figures = [one.name for measurement in every for one in measurement.figures]
    assert len(set(names)) == len(names)
    assert len(set(figures)) == len(figures)


def test_missed_goal_is_one_line():
    line = missed(figure("send", 8.0, 10.0, goal=at_least(0.85)))
    assert line == "send: 8/s (8), ratio 0.80; goal ≥ 0.85 of raw"


# The pages


@pytest.fixture
def page(tmp_path):
    """A page with a place for a table."""
    path = tmp_path / "page.md"
    path.write_text("# Title\n\nbefore\n\n<!-- bench -->\nold\n<!-- /bench -->\n\nafter\n")
    return path


def test_table_replaces_only_its_place_in_the_page(page):
    pages.rewrite(page, "| new |")
    assert page.read_text() == "# Title\n\nbefore\n\n<!-- bench -->\n| new |\n<!-- /bench -->\n\nafter\n"


def test_rewriting_a_page_twice_changes_nothing(page):
    table = r"| a \1 backslash | `code` |"
    pages.rewrite(page, table)
    once = page.read_text()
    pages.rewrite(page, table)
    assert page.read_text() == once
    assert table in once


@pytest.mark.parametrize(
    "text",
    [
        "no place",
        "<!-- bench -->\n",
        "<!-- /bench -->\n<!-- bench -->\n",
        "<!-- bench -->\n<!-- /bench -->\n<!-- bench -->\n<!-- /bench -->\n",
        "<!-- bench -->\n<!-- bench -->\n<!-- /bench -->\n",
    ],
)
def test_page_without_exactly_one_place_is_refused_unchanged(page, text):
    page.write_text(text)
    with pytest.raises(pages.PageError, match="must have one"):
        pages.check(page)
    with pytest.raises(pages.PageError):
        pages.rewrite(page, "new")
    assert page.read_text() == text


def test_missing_page_is_an_error_that_names_it(tmp_path):
    with pytest.raises(pages.PageError, match=r"^gone.md: No such file"):
        pages.check(tmp_path / "gone.md")


def test_handbook_has_a_place_for_the_table():
    pages.check(pages.PERFORMANCE)
