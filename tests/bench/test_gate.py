"""The gate: names each ratio that fell, and refuses an invalid baseline in one line."""

import bench
import pytest
from measure.figure import EXACT, Figure, Reading
from measure.gate import BASELINE, BaselineError, compare, compare_counts, read_baseline, write_baseline, write_counts


def figure(name, value, other=None, **options):
    made = Figure(name, name, **options)
    made.add(Reading(name, value, other))
    return made


@pytest.mark.parametrize(
    ("now", "report"),
    [
        (1.2, []),
        (0.8, []),
        (0.681, []),
        (0.67, ["send: 0.67, was 0.80: fell by 16%"]),
    ],
)
def test_ratio_may_rise_or_fall_a_little(now, report):
    assert compare({"send": 0.8}, [figure("send", now, 1.0)], {"send"}) == report


@pytest.mark.parametrize(
    ("now", "report"),
    [
        (0.1, []),
        (1.19, []),
        (1.21, ["flow: 1.21, was 0.80: rose by 51%"]),
    ],
)
def test_a_cost_may_fall_or_rise_a_little(now, report):
    assert compare({"flow": 0.8}, [figure("flow", now, 1.0, cost=True)], {"flow"}) == report


def test_each_figure_that_fell_is_named():
    figures = [figure("send", 1, 10), figure("idle", 2), figure("pull", 1, 10)]
    report = compare({"send": 0.8, "pull": 0.8}, figures, {"send", "idle", "pull"})
    assert [line.partition(":")[0] for line in report] == ["send", "pull"]


def test_seconds_are_not_compared():
    assert compare({"send": 0.8}, [figure("send", 0.008, 0.01)], {"send"}) == []


def test_figures_left_out_of_this_run_are_not_compared():
    assert compare({"send": 0.8, "send_10m": 0.9}, [figure("send", 0.8, 1.0)], {"send", "send_10m"}) == []


def test_figure_that_is_no_longer_measured_is_reported():
    assert compare({"sent": 0.8}, [], {"send"}) == ["sent: in the baseline, but nothing measures it"]


def test_figure_without_its_reference_is_reported():
    assert compare({"send": 0.8}, [figure("send", 1)], {"send"}) == ["send: in the baseline, but has no ratio any more"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", 'has no "ratios"'),
        ("{}", 'has no "ratios"'),
        ('{"ratios": []}', 'has no "ratios"'),
        ('{"ratios": {}}', 'has no "ratios"'),
        ('{"ratios": {"send": "fast"}}', "the ratio of send must be a number above 0, not 'fast'"),
        ('{"ratios": {"send": true}}', "must be a number above 0"),
        ('{"ratios": {"send": 0}}', "must be a number above 0"),
        ('{"ratios": {"send": NaN}}', "must be a number above 0"),
    ],
)
def test_invalid_baseline_is_an_error_in_one_line(tmp_path, text, why):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(BaselineError) as refused:
        read_baseline(path)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_baseline_is_an_error_that_names_it(tmp_path):
    with pytest.raises(BaselineError, match=r"gone.json: No such file"):
        read_baseline(tmp_path / "gone.json")


def test_written_baseline_contains_only_ratios(tmp_path):
    path = tmp_path / "baseline.json"
    write_baseline(path, [figure("send", 8.1234, 10), figure("idle", 2)], {"date": "2026-11-20"})
    assert read_baseline(path) == {"send": 0.812}


@pytest.mark.parametrize(
    ("before", "now", "report"),
    [
        (40.0, 1.0, []),
        (40.0, 41.1, []),
        (40.0, 41.3, ["flow: 41.3, was 40: rose by 3%"]),
        (0.03, 0.039, []),
        (0.03, 1.04, ["flow: 1.04, was 0.03: rose by 3367%"]),
    ],
)
def test_a_count_may_fall_or_rise_by_very_little(before, now, report):
    assert compare_counts({"flow": before}, [figure("flow", now, may_rise=EXACT)], {"flow"}) == report


def test_a_count_that_threads_decide_may_rise_by_more():
    assert compare_counts({"flow": 40.0}, [figure("flow", 45.0, may_rise=0.15)], {"flow"}) == []


def test_a_count_without_a_baseline_is_reported_and_so_is_one_that_nothing_counts_any_more():
    report = compare_counts({"gone": 1.0}, [figure("new", 0.5, may_rise=EXACT)], {"new"})
    assert report == ["gone: in the baseline, but nothing counts it", "new: 0.5, not in the baseline"]


def test_counts_and_ratios_are_written_apart(tmp_path):
    path = tmp_path / "baseline.json"
    write_counts(path, [figure("flow", 40.12345, may_rise=EXACT)])
    write_baseline(path, [figure("send", 8.1234, 10)], {"date": "2026-11-20"})
    write_counts(path, [figure("flow", 39.5, may_rise=EXACT)])
    assert read_baseline(path) == {"send": 0.812}
    assert read_baseline(path, counted=True) == {"flow": 39.5}


def test_baseline_without_counts_is_an_error(tmp_path):
    path = tmp_path / "baseline.json"
    write_baseline(path, [figure("send", 8.1234, 10)], {})
    with pytest.raises(BaselineError, match='has no "counts"'):
        read_baseline(path, counted=True)


def test_committed_baseline_has_every_count():
    every = [one for measurement in bench.measurements() for one in measurement.figures]
    counted = {figure.name for figure in every if figure.may_rise is not None}
    assert set(read_baseline(BASELINE, counted=True)) == counted


def test_committed_baseline_contains_only_measured_figures():
    known = {one.name for measurement in bench.measurements() for one in measurement.figures}
    assert set(read_baseline(BASELINE)) <= known
