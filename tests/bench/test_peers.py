"""`scripts/bench_peers.py`: calling adapters, evaluating replies, and continuing after a failure."""

import json
import os
import sys
from pathlib import Path

import bench_peers
import pytest
from peers import adapters
from peers.adapters import FailedError, python_of, run_adapter
from peers.figures import Multiple, Row, cells, day_cells, markdown, multiples, remarks, sorted_rows, verdict
from peers.roster import PEERS, Peer

from delayq import DelayQueue
from tests.support.waiting import wait_until

PYTHON = Path(sys.executable)
ADAPTERS = adapters.ADAPTERS
OWN = Peer("delayq", (), (10, 10, 10), "at least once", "itself")


def peer(name):
    return Peer(name, (f"{name}==1.2.3",), (10, 10, 10), "at most once", "threads", delays=False)


def row(name, **rates):
    made = Row(peer(name) if name != "delayq" else OWN)
    made.rates.update(rates)
    return made


# Evaluation of replies


def test_multiple_is_the_median_ratio_to_the_best_peer_of_each_round():
    rows = [
        row("delayq", bulk=[800.0, 900.0, 1000.0], consume=[90.0]),
        row("slow", bulk=[1.0, 1.0, 1.0], consume=[1.0]),
        row("fast", bulk=[100.0, 90.0, 200.0], consume=[9.0]),
    ]
    assert multiples(rows) == [Multiple("bulk", "fast", 8.0), Multiple("consume", "fast", 10.0)]


def test_peer_counts_with_its_faster_way_of_sending():
    rows = [row("delayq", bulk=[800.0]), row("one", send=[200.0], bulk=[100.0]), row("two", bulk=[150.0])]
    assert multiples(rows) == [Multiple("bulk", "one", 4.0)]


def test_peer_that_failed_later_is_compared_in_the_earlier_rounds():
    rows = [row("delayq", consume=[80.0, 900.0]), row("one", consume=[10.0])]
    assert multiples(rows) == [Multiple("consume", "one", 8.0)]


@pytest.mark.parametrize("others", [[], [row("one")]], ids=["none", "not measured"])
def test_no_multiple_without_a_measured_peer(others):
    assert multiples([row("delayq", bulk=[1.0], consume=[1.0]), *others]) == []


def test_verdict_has_the_multiples_and_the_goal():
    found = [Multiple("bulk", "rq", 8.04), Multiple("consume", "huey", 12.0)]
    assert verdict(found) == (
        "delayq sends in bulk 8.0 times as fast as the best (rq) and consumes 12.0 times as fast as the best (huey); "
        "goal 8 times."
    )
    assert verdict([Multiple("bulk", "rq", 7.99)]).endswith("; goal 8 times: MISSED.")
    assert verdict([]) == "Nothing to compare delayq with."


def test_rows_list_delayq_first_then_peers_by_consume_rate():
    rows = [row("none"), row("slow", consume=[1.0]), row("fast", consume=[2.0, 9.0, 3.0]), row("delayq")]
    assert [one.peer.name for one in sorted_rows(rows)] == ["delayq", "fast", "slow", "none"]


def test_row_has_medians_and_a_dash_for_missing_values():
    one = row("one", send=[1000.0, 3000.0, 2000.0], consume=[12.34])
    one.late = [float(late) for late in range(100, 0, -1)]
    one.failures["bulk"] = "not finished in 90 s"
    assert cells(one) == ["one", "1.2.3", "2,000", "–", "12.3", "51 ms", "100 ms", "–", "at most once"]
    assert remarks(one) == "one: threads; bulk failed: not finished in 90 s."


def test_remarks_report_early_deliveries():
    one = row("one")
    one.late = [-0.9, 3.0, -1.0, -307.5]
    assert remarks(one) == "one: threads; 2 of 4 delayed messages were early, by up to 308 ms."


def test_ordinary_day_of_a_row_has_a_dash_for_missing_values():
    one = row("one")
    one.day = {"flow_cpu": 407.123, "flow_commands": 70.55, "idle": 0.0, "near": 1440.0}
    assert day_cells(one) == ["one", "407", "70.5", "–", "–", "0", "1,440", "–"]


def test_peer_is_not_asked_for_what_it_cannot_do():
    assert OWN.once == ("late", "schedule", "flow", "slow", "idle", "near", "far")
    assert OWN._replace(delays=False).once == ("slow", "idle", "near", "far")
    assert OWN._replace(concurrent=False).once == ("late", "schedule", "flow", "idle", "near", "far")


def test_page_has_rows_verdict_and_remarks():
    text = markdown([row("delayq", bulk=[80.0])], [Multiple("bulk", "rq", 9.0)], "Measured here.")
    lines = text.splitlines()
    assert lines[0] == "Measured here."
    assert "| delayq | 0" in lines[4]
    assert lines[6] == "The ordinary day:"
    assert lines[10] == "| delayq | – | – | – | – | – | – | – |"
    assert lines[12] == verdict([Multiple("bulk", "rq", 9.0)])
    assert lines[-1] == "- delayq: itself."


def test_every_peer_has_a_short_adapter_and_exact_versions():
    for one in PEERS:
        assert len((ADAPTERS / f"{one.name}_peer.py").read_text().splitlines()) <= 80
        assert all("==" in requirement for requirement in one.requirements)
        assert one.version


# Calling adapters


def call_adapter(path, n=3):
    return run_adapter(PYTHON, path, "send", n, "redis://nowhere")


def test_reply_is_the_last_line_of_the_output(adapter):
    code = "import sys, json; print('hello'); print(json.dumps({'words': sys.argv[1:]})); print()"
    assert call_adapter(adapter(code)) == {"words": ["send", "3", "redis://nowhere"]}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise ModuleNotFoundError('no module named peer')", "ModuleNotFoundError: no module named peer"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('seconds: 5')", "not a reply: 'seconds: 5'"),
        ("print('[5.0]')", "not a reply: '[5.0]'"),
        ("pass", "not a reply: ''"),
    ],
)
def test_failed_adapter_is_an_error_in_one_line(adapter, code, why):
    with pytest.raises(FailedError) as failed:
        call_adapter(adapter(code))
    assert str(failed.value) == why


def test_slow_adapter_is_killed(adapter, monkeypatch):
    monkeypatch.setattr(adapters, "TIMEOUT", 0.2)
    with pytest.raises(FailedError, match=r"not finished in 0\.2 s"):
        call_adapter(adapter("import time; time.sleep(60)"))


def test_processes_left_by_an_adapter_are_killed(adapter):
    code = (
        "import subprocess, sys, json\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(json.dumps({'pid': left.pid}))\n"
    )
    left = call_adapter(adapter(code))["pid"]

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


def test_failed_installation_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(FailedError, match=r"cannot run uv: .*No such file"):
        python_of(peer("one"))


# Adapters


@pytest.mark.long
@pytest.mark.parametrize("work", ["send", "bulk", "consume", "producers"])
def test_delayq_adapter_sends_and_consumes(redis_url, work):
    reply = run_adapter(PYTHON, ADAPTERS / "delayq_peer.py", work, 300, redis_url)
    assert list(reply) == ["seconds"]
    assert 0 < reply["seconds"] < 30


@pytest.mark.long
def test_delayq_adapter_leaves_delayed_messages_in_redis(redis_url):
    assert run_adapter(PYTHON, ADAPTERS / "delayq_peer.py", "schedule", 20, redis_url) == {}
    with DelayQueue("peers", url=redis_url) as queue:
        assert queue.counts().pending == 20


def fake_adapter(*, lead, should_retry, wait):
    """Return the code of an adapter whose fake peer keeps messages in memory, and starts work after `wait` seconds."""
    return f"""
import sys, time
sys.path.insert(0, {str(ADAPTERS)!r})
import handling, measuring
measuring.LEAD, handling.TIMEOUT = {lead}, {should_retry}

class FakePeer:
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

measuring.main(FakePeer)
"""


@pytest.mark.long
def test_reply_has_the_lateness_of_each_message_despite_other_output(adapter):
    path = adapter(fake_adapter(lead=1, should_retry=20, wait=0))
    late = run_adapter(PYTHON, path, "late", 5, "redis://nowhere")["late"]
    assert len(late) == 5
    assert all(0 <= value < 20_000 for value in late)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (fake_adapter(lead=0.2, should_retry=20, wait=0.4), "its worker was not running within 0.2 s"),
        (fake_adapter(lead=0.2, should_retry=0.5, wait=60), "0 of 3 messages handled in 0.5 s"),
    ],
)
def test_slow_worker_is_an_error(adapter, code, why):
    with pytest.raises(FailedError) as failed:
        run_adapter(PYTHON, adapter(code), "late", 2, "redis://nowhere")
    assert str(failed.value) == why


# The program


@pytest.fixture
def program(monkeypatch, tmp_path):
    """`program(delayq=code, …)` makes the program measure peers with these adapters; returns its page."""

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


def reply_after(seconds):
    late = "[1.0] * int(sys.argv[2])"
    return f"import json, sys; print(json.dumps({{'seconds': {seconds}, 'late': {late}, 'cpu': 0.1, 'commands': 20}}))"


@pytest.mark.long
def test_failed_peer_does_not_end_the_run_and_is_not_called_again(program, capsys):
    program(
        delayq=reply_after(0.1), broken="raise SystemExit('out of order')", odd="print('{}')", fast=reply_after(1.0)
    )
    assert bench_peers.main(["--json", "--rounds", "2"]) == 0
    out, err = capsys.readouterr()
    assert "round 1 of 2: broken, send" in err
    assert "round 2 of 2: broken, send" not in err
    found = json.loads(out)
    assert found["peers"]["broken"]["failures"]["send"] == "out of order"
    assert found["peers"]["odd"]["failures"]["consume"] == "no seconds in its reply {}"
    assert found["peers"]["fast"]["rates"]["send"]["values"] == [10.0, 10.0]
    assert found["peers"]["fast"]["day"] == {
        "slow_cpu": 100.0,
        "slow_commands": 0.02,
        "idle": 2.0,
        "near": 1600.0,
        "far": 1600.0,
    }
    assert found["peers"]["odd"]["failures"]["slow"] == "no cpu in its reply {}"
    assert found["peers"]["odd"]["failures"]["idle"] == "no commands in its reply {}"
    assert found["peers"]["delayq"]["late"] == {"p50": 1.0, "p99": 1.0}
    assert found["multiples"]["consume"] == {"peer": "fast", "multiple": 10.0, "goal": 8.0, "met": True}


@pytest.mark.long
def test_peer_with_a_failed_setup_is_reported(program, monkeypatch, capsys):
    program(delayq=reply_after(0.1), gone=reply_after(1.0), fast=reply_after(1.0))

    def python_of(one):
        if one.name == "gone":
            raise FailedError("not installed: no network")
        return PYTHON

    monkeypatch.setattr(bench_peers, "python_of", python_of)
    assert bench_peers.main(["--rounds", "1"]) == 0
    out, err = capsys.readouterr()
    assert "gone: threads; setup failed: not installed: no network." in out
    assert "gone, send" not in err


@pytest.mark.long
def test_missed_goal_exits_1_and_is_the_last_line(program, capsys):
    program(delayq=reply_after(0.5), fast=reply_after(1.0))
    assert bench_peers.main(["--rounds", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("goal 8 times: MISSED.")


def test_run_without_peers_exits_1(program, capsys):
    program(delayq=reply_after(0.5), fast=reply_after(1.0))
    assert bench_peers.main(["--quick", "--only", "delayq"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing to compare delayq with."


def test_table_is_written_between_the_marks_of_the_page(program):
    page = program(delayq=reply_after(0.1), fast=reply_after(1.0))
    assert bench_peers.main(["--docs", "--rounds", "1"]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- peers -->\nMeasured by `make bench-peers` on ")
    assert "| fast | 1.2.3 | 10 | 10 | 10 | – | – | – | at most once |" in text
    assert "| fast | – | – | 100 | 0.02 | 2 | 1,600 | 1,600 |" in text
    assert text.endswith("- fast: threads.\n<!-- /peers -->\nafter\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rounds", "0"], "argument --rounds: must be 1 to 1000, not '0'"),
        (["--only", "sidekiq"], "no peer has 'sidekiq' in its name: delayq, celery, "),
        (["--docs", "--quick"], "--docs needs a whole run"),
        (["--docs", "--only", "rq"], "--docs needs a whole run"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_usage_error_is_one_line(words, why, capsys):
    with pytest.raises(SystemExit) as ended:
        bench_peers.main(words)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("bench-peers: ")
    assert why in printed
    assert printed.count("\n") == 1


def test_page_without_marks_is_reported_before_any_measurement(program, capsys):
    program(delayq=reply_after(0.1)).write_text("no marks\n")
    with pytest.raises(SystemExit) as ended:
        bench_peers.main(["--docs"])
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == "bench-peers: performance.md must have <!-- peers --> and <!-- /peers --> after it\n"
    )
