"""`scripts/bench.py`: options, output, and exit codes."""

import json
import sys
from types import SimpleNamespace

import bench
import pytest
from measure import gate, pages, report
from measure.figure import Figure, Measurement, Reading, at_least
from measure.options import read_options

from tests.support.processes import run

PROGRAM = bench.__file__


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rounds", "0"], "argument --rounds: must be 1 to 1000, not '0'"),
        (["--rounds", "many"], "argument --rounds: must be 1 to 1000, not 'many'"),
        (["--rounds", "-1"], "argument --rounds: "),
        (["--gate", "gone.json"], "gone.json: No such file"),
        (["--gate"], "argument --gate: expected one argument"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["--quick", "--save-baseline"], "--save-baseline needs a whole run, without --quick"),
        (["--only", "send", "--save-baseline"], "--save-baseline needs a whole run, without --only"),
    ],
)
def test_usage_error_is_one_line(words, why, capsys):
    with pytest.raises(SystemExit) as ended:
        read_options(None, words)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("bench: ")
    assert why in printed
    assert printed.count("\n") == 1


def test_missing_page_is_reported_before_any_measurement(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "README", tmp_path / "README.md")
    with pytest.raises(SystemExit) as ended:
        read_options(None, ["--readme"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "bench: README.md: No such file or directory\n"


def test_partial_run_does_not_change_the_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "README", tmp_path / "README.md")
    assert not read_options(None, ["--readme", "--only", "send"]).readme
    assert "their tables need a whole run, without --only" in capsys.readouterr().err


def test_unknown_name_is_reported_with_the_known_names(capsys):
    assert bench.main(["--only", "sprint"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("bench: no measurement has 'sprint' in its name: alone, ")
    assert printed.count("\n") == 1


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """`measured(value)` makes the program measure one figure, with the raw limit 10 and the goal 0.85."""

    def set_up(value):
        def take(_):
            return [Reading("send", float(value), 10.0)]

        def room():
            return [Measurement("send", take, [Figure("send", "send", at_least(0.85))])]

        monkeypatch.setattr(bench, "MODULES", [SimpleNamespace(measurements=room)])
        for name in ("README", "PERFORMANCE"):
            page = tmp_path / f"{name}.md"
            page.write_text("<!-- bench -->\n<!-- /bench -->\n")
            monkeypatch.setattr(pages, name, page)
        monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
        return tmp_path

    return set_up


def test_missed_goal_is_reported_with_exit_code_1(measured, capsys):
    measured(8.0)
    assert bench.main(["--rounds", "2"]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "missed: send: 8/s (8), ratio 0.80; goal ≥ 0.85 of raw"
    assert "MISSED" in out


def test_whole_run_writes_the_tables_and_the_baseline(measured, monkeypatch, capsys):
    monkeypatch.setattr(report, "SHORT", ("send",))
    folder = measured(9.0)
    assert bench.main(["--readme", "--save-baseline", "--rounds", "2"]) == 0
    assert "| send | 9/s | 0.90 of raw | ≥ 0.85 of raw |" in (folder / "README.md").read_text()
    assert "| send | 9/s | 9 | raw 10/s | 0.90 | ≥ 0.85 of raw |" in (folder / "PERFORMANCE.md").read_text()
    assert gate.read_baseline(folder / "baseline.json") == {"send": 0.9}
    assert "round 2 of 2: send" in capsys.readouterr().err


def test_failed_measurement_is_reported_and_nothing_is_written(measured, capsys):
    folder = measured("fast")
    assert bench.main(["--readme", "--save-baseline"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("failed: send: ValueError: could not convert")
    assert (folder / "README.md").read_text() == "<!-- bench -->\n<!-- /bench -->\n"
    assert not (folder / "baseline.json").exists()


@pytest.mark.parametrize(("before", "code"), [(0.8, 0), (0.99, 1)])
def test_gate_checks_ratios_not_goals(measured, capsys, before, code):
    folder = measured(8.0)
    baseline = folder / "given.json"
    baseline.write_text(json.dumps({"ratios": {"send": before}}))
    assert bench.main(["--gate", str(baseline), "--rounds", "1"]) == code
    worse = [line for line in capsys.readouterr().err.splitlines() if line.startswith("worse")]
    assert worse == (["worse: send: 0.80, was 0.99: fell by 19%"] if code else [])


@pytest.mark.parametrize(("before", "code"), [(8.0, 0), (7.5, 1)])
def test_run_that_counts_checks_counts_alone_and_can_save_them(measured, monkeypatch, capsys, before, code):
    folder, seen = measured(8.0), []

    def take(server):
        seen.append((server.counted, server.scale))
        return [Reading("trips", 8.0)]

    def room():
        timed = Measurement("send", lambda _: 1 / 0, [Figure("send", "send")])
        return [timed, Measurement("trips", take, [Figure("trips", "trips", may_rise=0.03)])]

    monkeypatch.setattr(bench, "MODULES", [SimpleNamespace(measurements=room)])
    baseline = folder / "given.json"
    baseline.write_text(json.dumps({"ratios": {"send": 0.8}, "counts": {"trips": before}}))
    assert bench.main(["--gate", str(baseline), "--counted", "--save-baseline"]) == code
    more = [line for line in capsys.readouterr().err.splitlines() if line.startswith("more")]
    assert more == (["more: trips: 8, was 7.5: rose by 7%"] if code else [])
    assert seen == [(True, 0.1)] * 2
    assert gate.read_baseline(folder / "baseline.json", counted=True) == {"trips": 8.0}


@pytest.mark.long
def test_quick_run_reports_figures_with_references():
    command = [sys.executable, PROGRAM, "--quick", "--only", "event_log", "--json"]
    done = run(command, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode in {0, 1}, done.stderr  # how fast it is here is not the question
    found = json.loads(done.stdout)
    assert set(found["figures"]) == {"send_many_logged", "consume_logged"}
    for figure in found["figures"].values():
        assert figure["median"] > 0
        assert figure["reference_name"] == "unlogged"
        assert figure["ratio"] == figure["values"][0] / figure["references"][0]
    assert (found["left_out"], found["failed"]) == ({}, {})
