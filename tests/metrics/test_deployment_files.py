"""The dashboard and the alert rules that are shipped use metrics that are exported, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from delayq import DelayQueue
from delayq.broker.requests import RedisCommand
from delayq.cli import main
from delayq.metrics import QueueCollector
from delayq.metrics.process_metrics import ProcessMetrics, WorkerMonitor
from delayq.worker.parts import meter
from tests.metrics.samples import names_of
from tests.support.processes import run
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "delayq" / "docs" / "deployment"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
KEDA = DEPLOY / "kubernetes" / "keda.yml"
DASHBOARD = DEPLOY / "grafana" / "delayq.json"
OF_PROMETHEUS = {"up"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text())["panels"]  # type: ignore[no-any-return]


def metrics_in(expression: str) -> set[str]:
    """Return the names of the metrics in an expression: what is no function, keyword, label or text."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on|ignoring|without)\s*\([^)]*\)", " ", expression)
    words = set(re.findall(r"(?<![\w.$])([a-z_][a-z0-9_]*)(?!\s*\()\b", bare))
    return words - {"and", "or", "unless", "by", "on", "ignoring", "e"}


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    yield from (trigger["metadata"]["query"] for trigger in yaml.safe_load(KEDA.read_text())["spec"]["triggers"])


@pytest.fixture
def exported(redis_url, tmp_path, monkeypatch):
    """The names of all that is exported of a queue that was used, and by its worker."""
    monkeypatch.setattr(meter, "_counting", False)
    monitor, queues = WorkerMonitor(), QueueCollector(url=redis_url)
    with DelayQueue("jobs", url=redis_url, lateness_slo="99% within 1s", callback=lambda message: None) as queue:
        consuming = queue.start_consume()
        monitor.consumers = lambda: [consuming]
        queue.send_delay_msg(1)
        queue.executor.call(RedisCommand(("HSET", queue.context.calls.keys.meta, "cold", "1"), int))
        wait_until(lambda: "delayq_worker_messages_total" in names_of(monitor))
        found = names_of(monitor) | names_of(ProcessMetrics(tmp_path))
        queue.stop_consume()  # which tells what it has counted
        return found | names_of(queues)


def test_all_metrics_of_alerts_dashboard_and_scaling_are_exported(exported):
    used = set[str]().union(*map(metrics_in, expressions()))
    assert used - OF_PROMETHEUS - exported == set()
    assert len(used) > 20


def test_the_handbook_lists_what_is_exported(exported):
    page = (ROOT / "delayq" / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"`(delayq_[a-z_]+)", page))
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported if name.startswith("delayq_")}
    assert ours - documented == set()
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in documented} - ours == set()


def test_every_alert_says_what_is_wrong():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 10
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]


def test_every_alert_says_what_to_run_first(monkeypatch):
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    for rule in rules():
        description = rule["annotations"]["description"].replace("{{ $labels.queue }}", "jobs")
        assert "Run `" in description, rule["alert"]
        for command in re.findall("`([^`]*)`", description):
            program, *words = command.split()
            if program == "delayq":
                ended = CliRunner().invoke(main, words, prog_name="delayq")
                assert ended.exit_code == 0, f"{rule['alert']}: {ended.stderr}"
            else:
                assert command == "curl http://{{ $labels.instance }}/readyz"


def test_one_alert_at_a_time_tells_of_the_error_budget():
    (low,) = (rule for rule in rules() if rule["alert"] == "DelayqErrorBudgetLow")
    (missed,) = (rule for rule in rules() if rule["alert"] == "DelayqObjectiveMissed")
    metric, bound = missed["expr"].split(" < ")
    assert low["expr"] == f"{metric} < 0.25 unless max_over_time({metric}[{missed['for']}]) < {bound}"


def test_panels_have_titles_and_places_of_their_own():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(places) == len(set(places)) == len({panel["title"] for panel in panels()})
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_names_are_told_from_functions_and_labels():
    text = 'sum by (a) (rate(x_total{q=~"$b"}[5m])) > ignoring(w) 600 * max_over_time(rate(y[5m])[6h:5m]) and z == 1'
    assert metrics_in(text) == {"x_total", "y", "z"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules():
    done = run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
