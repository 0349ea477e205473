"""`scripts/bench.py` as it is started: its options, what it prints, and its exit codes."""

import json
import subprocess
import sys
from types import SimpleNamespace

import bench
import pytest
from measure import gate, pages
from measure.figure import Figure, Measurement, Reading, at_least
from measure.options import read_options

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
        (["--quick", "--save-baseline"], "--save-baseline takes a whole run, without --quick"),
        (["--only", "send", "--save-baseline"], "--save-baseline takes a whole run, without --only"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(words, why, capsys):
    with pytest.raises(SystemExit) as ended:
        read_options(None, words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("bench: ")
    assert why in told
    assert told.count("\n") == 1


def test_a_page_without_a_place_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "README", tmp_path / "README.md")
    with pytest.raises(SystemExit) as ended:
        read_options(None, ["--readme"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "bench: README.md: No such file or directory\n"


def test_part_of_a_run_leaves_the_pages_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "README", tmp_path / "README.md")
    assert not read_options(None, ["--readme", "--only", "send"]).readme
    assert "their tables take a whole run, without --only" in capsys.readouterr().err


def test_nothing_of_that_name_is_told_with_the_names_there_are(capsys):
    assert bench.main(["--only", "sprint"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bench: nothing to measure has 'sprint' in its name: send, ")
    assert told.count("\n") == 1


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """`measured(value)` has the programme measure one figure, with the raw limit 10 and the goal 0.85."""

    def set_up(value):
        def take(_):
            return [Reading("send", float(value), 10.0)]

        def room():
            return [Measurement("send", take, [Figure("send", "send", at_least(0.85))])]

        monkeypatch.setattr(bench, "ROOMS", [SimpleNamespace(measurements=room)])
        for name in ("README", "PERFORMANCE"):
            page = tmp_path / f"{name}.md"
            page.write_text("<!-- bench -->\n<!-- /bench -->\n")
            monkeypatch.setattr(pages, name, page)
        monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
        return tmp_path

    return set_up


def test_a_goal_that_is_missed_is_named_and_ends_with_1(measured, capsys):
    measured(8.0)
    assert bench.main(["--rounds", "2"]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "missed: send: 8/s (8), ratio 0.80; goal ≥ 0.85 of raw"
    assert "MISSED" in out


def test_a_whole_run_writes_the_tables_and_the_baseline(measured, capsys):
    folder = measured(9.0)
    assert bench.main(["--readme", "--save-baseline", "--rounds", "2"]) == 0
    assert (
        "| send one by one; beside redis-py's own `EVALSHA` | 9/s | 0.90 | ≥ 0.85 of raw |"
        in (folder / "README.md").read_text()
    )
    assert "| send | 9/s | 9 | raw 10/s | 0.90 | ≥ 0.85 of raw |" in (folder / "PERFORMANCE.md").read_text()
    assert gate.read_baseline(folder / "baseline.json") == {"send": 0.9}
    assert "round 2 of 2: send" in capsys.readouterr().err


def test_a_measurement_that_fails_is_named_and_nothing_is_written(measured, capsys):
    folder = measured("fast")
    assert bench.main(["--readme", "--save-baseline"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("failed: send: ValueError: could not convert")
    assert (folder / "README.md").read_text() == "<!-- bench -->\n<!-- /bench -->\n"
    assert not (folder / "baseline.json").exists()


@pytest.mark.parametrize(("before", "code"), [(0.8, 0), (0.99, 1)])
def test_a_gate_judges_what_fell_and_not_the_goals(measured, capsys, before, code):
    folder = measured(8.0)
    baseline = folder / "given.json"
    baseline.write_text(json.dumps({"ratios": {"send": before}}))
    assert bench.main(["--gate", str(baseline), "--rounds", "1"]) == code
    fell = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fell")]
    assert fell == (["fell: send: 0.80, was 0.99: fell by 19%"] if code else [])


def test_a_look_reports_figures_beside_others():
    command = [sys.executable, PROGRAM, "--quick", "--only", "event_log", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode in {0, 1}, done.stderr  # how fast it is here is not the question
    found = json.loads(done.stdout)
    assert set(found["figures"]) == {"send_many_logged", "consume_logged"}
    for figure in found["figures"].values():
        assert figure["median"] > 0
        assert figure["beside"] == "unlogged"
        assert figure["ratio"] == figure["values"][0] / figure["others"][0]
    assert (found["left_out"], found["failed"]) == ({}, {})
