"""`scripts/bench_peers.py`: how adapters are asked, what is made of their answers, and that none who fails ends it."""

import json
import os
import sys
from pathlib import Path

import bench_peers
import pytest
from peers import asking
from peers.asking import FailedError, ask, python_of
from peers.figures import Multiple, Row, cells, markdown, multiples, remarks, sorted_rows, verdict
from peers.roster import PEERS, Peer

from delayq import DelayQueue
from tests.support.waiting import wait_until

PYTHON = Path(sys.executable)
ADAPTERS = asking.ADAPTERS
OWN = Peer("delayq", (), (10, 10, 10), "at least once", "itself")


def peer(name):
    return Peer(name, (f"{name}==1.2.3",), (10, 10, 10), "at most once", "threads", delays=False)


def row(name, **rates):
    made = Row(peer(name) if name != "delayq" else OWN)
    made.rates.update(rates)
    return made


# What is made of the answers


def test_a_multiple_is_the_median_of_the_ratios_to_the_best_peer_round_by_round():
    rows = [
        row("delayq", bulk=[800.0, 900.0, 1000.0], consume=[90.0]),
        row("slow", bulk=[1.0, 1.0, 1.0], consume=[1.0]),
        row("fast", bulk=[100.0, 90.0, 200.0], consume=[9.0]),
    ]
    assert multiples(rows) == [Multiple("bulk", "fast", 8.0), Multiple("consume", "fast", 10.0)]


def test_a_peer_that_is_faster_one_by_one_is_taken_at_that():
    rows = [row("delayq", bulk=[800.0]), row("one", send=[200.0], bulk=[100.0]), row("two", bulk=[150.0])]
    assert multiples(rows) == [Multiple("bulk", "one", 4.0)]


def test_a_peer_that_failed_in_a_later_round_is_compared_in_those_before():
    rows = [row("delayq", consume=[80.0, 900.0]), row("one", consume=[10.0])]
    assert multiples(rows) == [Multiple("consume", "one", 8.0)]


@pytest.mark.parametrize("others", [[], [row("one")]], ids=["none", "not measured"])
def test_without_a_peer_there_is_no_multiple(others):
    assert multiples([row("delayq", bulk=[1.0], consume=[1.0]), *others]) == []


def test_the_last_line_tells_what_was_reached():
    found = [Multiple("bulk", "rq", 8.04), Multiple("consume", "huey", 12.0)]
    assert verdict(found) == (
        "delayq sends in bulk 8.0 times as fast as the best (rq) and consumes 12.0 times as fast as the best (huey); "
        "goal 8 times."
    )
    assert verdict([Multiple("bulk", "rq", 7.99)]).endswith("; goal 8 times: MISSED.")
    assert verdict([]) == "Nothing to compare delayq with."


def test_delayq_comes_first_and_its_peers_by_the_rate_at_which_they_consume():
    rows = [row("none"), row("slow", consume=[1.0]), row("fast", consume=[2.0, 9.0, 3.0]), row("delayq")]
    assert [one.peer.name for one in sorted_rows(rows)] == ["delayq", "fast", "slow", "none"]


def test_a_row_shows_medians_and_a_dash_for_what_was_not_measured():
    one = row("one", send=[1000.0, 3000.0, 2000.0], consume=[12.34])
    one.late = [float(late) for late in range(100, 0, -1)]
    one.failures["bulk"] = "not done in 90 s"
    assert cells(one) == ["one", "1.2.3", "2,000", "–", "12.3", "51 ms", "100 ms", "–", "at most once"]
    assert remarks(one) == "one: threads; bulk failed: not done in 90 s."


def test_who_delivers_early_is_told_so():
    one = row("one")
    one.late = [-0.9, 3.0, -1.0, -307.5]
    assert remarks(one) == "one: threads; 2 of 4 delayed messages came before their time, by up to 308 ms."


def test_the_page_has_the_rows_the_verdict_and_the_remarks():
    text = markdown([row("delayq", bulk=[80.0])], [Multiple("bulk", "rq", 9.0)], "Measured here.")
    lines = text.splitlines()
    assert lines[0] == "Measured here."
    assert "| delayq | " in lines[4]
    assert lines[6] == verdict([Multiple("bulk", "rq", 9.0)])
    assert lines[-1] == "- delayq: itself."


def test_every_peer_has_an_adapter_of_a_page_and_exact_versions():
    for one in PEERS:
        assert len((ADAPTERS / f"{one.name}_peer.py").read_text().splitlines()) <= 80
        assert all("==" in requirement for requirement in one.requirements)
        assert one.version


# How adapters are asked


@pytest.fixture
def adapter(tmp_path):
    """`adapter(code)` returns a programme of this code."""

    def write(code):
        path = tmp_path / "adapter.py"
        path.write_text(code)
        return path

    return write


def asked(path, n=3):
    return ask(PYTHON, path, "send", n, "redis://nowhere")


def test_the_answer_is_the_last_line(adapter):
    code = "import sys, json; print('hello'); print(json.dumps({'words': sys.argv[1:]})); print()"
    assert asked(adapter(code)) == {"words": ["send", "3", "redis://nowhere"]}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise ModuleNotFoundError('no module named peer')", "ModuleNotFoundError: no module named peer"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('seconds: 5')", "not an answer: 'seconds: 5'"),
        ("print('[5.0]')", "not an answer: '[5.0]'"),
        ("pass", "not an answer: ''"),
    ],
)
def test_an_adapter_that_fails_is_told_in_a_line(adapter, code, why):
    with pytest.raises(FailedError) as failed:
        asked(adapter(code))
    assert str(failed.value) == why


def test_an_adapter_that_takes_too_long_is_ended(adapter, monkeypatch):
    monkeypatch.setattr(asking, "TIMEOUT", 0.2)
    with pytest.raises(FailedError, match=r"not done in 0\.2 s"):
        asked(adapter("import time; time.sleep(60)"))


def test_what_an_adapter_leaves_running_is_ended(adapter):
    code = (
        "import subprocess, sys, json\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(json.dumps({'pid': left.pid}))\n"
    )
    left = asked(adapter(code))["pid"]

    def is_gone():
        stat = Path(f"/proc/{left}/stat")
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return not _runs(left)

    wait_until(is_gone)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_cannot_be_installed_is_told_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(FailedError, match=r"cannot run uv: .*No such file"):
        python_of(peer("one"))


# The works themselves


@pytest.mark.parametrize("work", ["send", "bulk", "consume"])
def test_delayq_does_the_work_through_its_adapter(redis_url, work):
    answer = ask(PYTHON, ADAPTERS / "delayq_peer.py", work, 300, redis_url)
    assert list(answer) == ["seconds"]
    assert 0 < answer["seconds"] < 30


def test_delayq_leaves_what_is_due_later_in_redis(redis_url):
    assert ask(PYTHON, ADAPTERS / "delayq_peer.py", "schedule", 20, redis_url) == {}
    with DelayQueue("peers", url=redis_url) as queue:
        assert queue.counts().pending == 20


def pretending(*, lead, patience, wait):
    """Return the code of an adapter whose peer keeps its messages to itself, and works after some seconds."""
    return f"""
import sys, time
sys.path.insert(0, {str(ADAPTERS)!r})
import measuring
measuring.LEAD, measuring.PATIENCE = {lead}, {patience}

class Pretended:
    def __init__(self, url):
        self.sent = []
    def send(self, texts):
        self.sent += [(0.0, text) for text in texts]
    def send_later(self, dues):
        self.sent += [(due, measuring.text_of(due)) for due in dues]
    def work(self):
        print("busy")
        time.sleep({wait})
        for due, text in self.sent:
            time.sleep(measuring.delay_to(due))
            measuring.handled(text)

measuring.main(Pretended)
"""


def test_lateness_is_told_of_each_message_and_what_a_peer_prints_is_no_answer(adapter):
    path = adapter(pretending(lead=1, patience=20, wait=0))
    late = ask(PYTHON, path, "late", 5, "redis://nowhere")["late"]
    assert len(late) == 5
    assert all(0 <= value < 20_000 for value in late)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (pretending(lead=0.2, patience=20, wait=0.4), "its worker was not there within 0.2 s"),
        (pretending(lead=0.2, patience=0.5, wait=60), "0 of 3 messages handled in 0.5 s"),
    ],
)
def test_a_worker_that_is_too_slow_is_given_up(adapter, code, why):
    with pytest.raises(FailedError) as failed:
        ask(PYTHON, adapter(code), "late", 2, "redis://nowhere")
    assert str(failed.value) == why


# The programme


@pytest.fixture
def program(monkeypatch, tmp_path):
    """`program(delayq=code, …)` has it measure peers with such adapters; returns its page."""

    def set_up(**adapters):
        for name, code in adapters.items():
            (tmp_path / f"{name}_peer.py").write_text(code)
        monkeypatch.setattr(bench_peers, "ADAPTERS", tmp_path)
        monkeypatch.setattr(bench_peers, "PEERS", [OWN if name == "delayq" else peer(name) for name in adapters])
        monkeypatch.setattr(bench_peers, "python_of", lambda _: PYTHON)
        page = tmp_path / "performance.md"
        page.write_text("before\n<!-- peers -->\nold\n<!-- /peers -->\nafter\n")
        monkeypatch.setattr(bench_peers, "PAGE", page)
        return page

    return set_up


def answering(seconds):
    late = "[1.0] * int(sys.argv[2])"
    return f"import json, sys; print(json.dumps({{'seconds': {seconds}, 'late': {late}}}))"


def test_a_peer_that_fails_does_not_end_the_run_and_is_not_asked_again(program, capsys):
    program(delayq=answering(0.1), broken="raise SystemExit('out of order')", odd="print('{}')", fast=answering(1.0))
    assert bench_peers.main(["--json", "--rounds", "2"]) == 0
    out, err = capsys.readouterr()
    assert "round 1 of 2: broken, send" in err
    assert "round 2 of 2: broken, send" not in err
    found = json.loads(out)
    assert found["peers"]["broken"]["failures"]["send"] == "out of order"
    assert found["peers"]["odd"]["failures"]["consume"] == "no seconds in its answer {}"
    assert found["peers"]["fast"]["rates"]["send"]["values"] == [10.0, 10.0]
    assert found["peers"]["delayq"]["late"] == {"p50": 1.0, "p99": 1.0}
    assert found["multiples"]["consume"] == {"peer": "fast", "multiple": 10.0, "goal": 8.0, "met": True}


def test_a_peer_that_cannot_be_set_up_is_named(program, monkeypatch, capsys):
    program(delayq=answering(0.1), gone=answering(1.0), fast=answering(1.0))

    def python_of(one):
        if one.name == "gone":
            raise FailedError("not installed: no network")
        return PYTHON

    monkeypatch.setattr(bench_peers, "python_of", python_of)
    assert bench_peers.main(["--rounds", "1"]) == 0
    out, err = capsys.readouterr()
    assert "gone: threads; setup failed: not installed: no network." in out
    assert "gone, send" not in err


def test_a_missed_goal_ends_with_1_and_stands_in_the_last_line(program, capsys):
    program(delayq=answering(0.5), fast=answering(1.0))
    assert bench_peers.main(["--rounds", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("goal 8 times: MISSED.")


def test_nothing_to_compare_with_ends_with_1(program, capsys):
    program(delayq=answering(0.5), fast=answering(1.0))
    assert bench_peers.main(["--quick", "--only", "delayq"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing to compare delayq with."


def test_the_table_goes_between_the_marks_of_the_page(program):
    page = program(delayq=answering(0.1), fast=answering(1.0))
    assert bench_peers.main(["--docs", "--rounds", "1"]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- peers -->\nMeasured by `make bench-peers` on ")
    assert "| fast | 1.2.3 | 10 | 10 | 10 | – | – | – | at most once |" in text
    assert text.endswith("- fast: threads.\n<!-- /peers -->\nafter\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rounds", "0"], "argument --rounds: must be 1 to 1000, not '0'"),
        (["--only", "sidekiq"], "no peer has 'sidekiq' in its name: delayq, celery, "),
        (["--docs", "--quick"], "--docs takes a whole run"),
        (["--docs", "--only", "rq"], "--docs takes a whole run"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(words, why, capsys):
    with pytest.raises(SystemExit) as ended:
        bench_peers.main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("bench-peers: ")
    assert why in told
    assert told.count("\n") == 1


def test_a_page_without_a_place_is_told_before_anything_is_measured(program, capsys):
    program(delayq=answering(0.1)).write_text("no marks\n")
    with pytest.raises(SystemExit) as ended:
        bench_peers.main(["--docs"])
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == "bench-peers: performance.md must have <!-- peers --> and <!-- /peers --> after it\n"
    )
