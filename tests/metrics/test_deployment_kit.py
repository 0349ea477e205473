"""The files for Docker, systemd and Kubernetes: they parse, their commands are valid, and their times fit together."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from delayq import DelayQueue
from delayq.cli import main
from delayq.metrics import QueueCollector
from delayq.values.times import to_millis
from tests.metrics.samples import samples_of
from tests.metrics.test_deployment_files import ALERTS, DASHBOARD, DEPLOY, KEDA, ROOT
from tests.support.processes import run

DOCKER, SYSTEMD, KUBERNETES = DEPLOY / "docker", DEPLOY / "systemd", DEPLOY / "kubernetes"
COMPOSE = yaml.safe_load((DOCKER / "compose.yml").read_text())
MANIFESTS = {
    (found["kind"], found["metadata"]["name"]): found
    for path in sorted(KUBERNETES.glob("*.yml"))
    for found in yaml.safe_load_all(path.read_text())
}
PODS = {name: found["spec"]["template"]["spec"] for (kind, name), found in MANIFESTS.items() if kind == "Deployment"}
MARGIN = 10
"""Seconds to settle and end, beyond `--grace`."""


def steps() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile: name and the rest of the line."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line.strip()]


def step(name: str) -> str:
    """Return the last instruction of a name."""
    return [rest for found, rest in steps() if found == name][-1]


def unit(name: str) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    parsed.read_string((SYSTEMD / name).read_text())
    return parsed


def command_of(name: str) -> list[str]:
    words = shlex.split(
        unit(name)["Service"]["ExecStart"].replace("%i", "reminders" if "notify" in name else "reminders:queue")
    )
    assert words[0] == "/srv/app/.venv/bin/delayq"
    return words[1:]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments of `delayq` in all files, and where they are from."""
    assert json.loads(step("ENTRYPOINT")) == ["delayq"]
    yield "the image", json.loads(step("CMD"))
    yield "its health check", json.loads(step("HEALTHCHECK").partition("CMD ")[2])[1:]
    for name, service in COMPOSE["services"].items():
        if service["image"] == "delayq-worker":
            yield f"compose: {name}", service["command"]
    for name, pod in PODS.items():
        yield f"kubernetes: {name}", pod["containers"][0]["args"]
    for path in SYSTEMD.iterdir():
        yield path.name, command_of(path.name)


def seconds(text: str) -> float:
    return to_millis(text) / 1000


def grace(words: list[str]) -> float:
    return seconds(words[words.index("--grace") + 1])


def test_all_commands_are_valid(monkeypatch):
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    found = dict(commands())
    assert len(found) == 10
    for where, words in found.items():
        assert all(isinstance(word, str) for word in words), where  # "9121" has quotes, for YAML would make it a number
        ended = CliRunner().invoke(main, words, prog_name="delayq")
        assert ended.exit_code == 0, f"{where}: {ended.stderr}"


def test_every_service_manager_waits_longer_than_the_grace():
    worker = PODS["delayq-worker"]
    waits = {
        "compose": (
            COMPOSE["services"]["worker"]["command"],
            seconds(COMPOSE["services"]["worker"]["stop_grace_period"]),
        ),
        "kubernetes": (worker["containers"][0]["args"], worker["terminationGracePeriodSeconds"]),
        "systemd": (
            command_of("delayq-worker@.service"),
            int(unit("delayq-worker@.service")["Service"]["TimeoutStopSec"]),
        ),
    }
    for where, (words, wait) in waits.items():
        assert wait >= grace(words) + MARGIN, where


# Docker


def test_the_image_has_all_that_it_copies():
    allowed = [line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = [
        words[:-1] for name, rest in steps() if name == "COPY" and not rest.startswith("--") for words in [rest.split()]
    ]
    sources = [source for words in copied for source in words]
    assert sorted(sources) == sorted(allowed)
    for source in sources:
        assert (DOCKER / source).exists(), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extra,) = re.findall(r'"delayq\[(\w+)\]"', (DOCKER / "Dockerfile").read_text())
    (service,) = project["optional-dependencies"][extra]
    assert {"http", "prometheus", "web"} <= set(re.findall(r"\w+", service))  # of delayq notify, metrics and web


def test_the_image_runs_as_nobody_in_two_stages():
    names = [name for name, _ in steps()]
    assert names.count("FROM") == 2
    assert int(step("USER").partition(":")[0]) >= 1000
    assert step("STOPSIGNAL") == "SIGTERM"
    assert all(pod["securityContext"]["runAsUser"] == int(step("USER").partition(":")[0]) for pod in PODS.values())


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_the_steps_of_the_image_build_a_worker(tmp_path, redis_url):
    """Run the steps without Docker, in a folder in place of the root; packages but delayq come from the network."""
    for name, rest in steps():
        words = shlex.split(rest)
        if name == "COPY" and not rest.startswith("--"):
            *sources, target = words
            for source in sources:
                folder = tmp_path / target[1:]
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(DOCKER / source, folder)
        elif name == "RUN" and words[0] != "useradd":
            command = [re.sub(r"^/venv", f"{tmp_path}/venv", word) for word in words]
            command = [re.sub(r"^delayq\[", f"{ROOT}[", word) for word in command]
            command = [sys.executable, *command[1:]] if command[0] == "python" else command
            done = run(command, cwd=tmp_path, capture_output=True, text=True, env=clean_environment())
            if "No matching distribution found for hatchling" in done.stderr or "Failed to establish" in done.stderr:
                pytest.skip("no network")
            assert done.returncode == 0, done.stdout + done.stderr
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_delay_msg("the wash")
    command = [tmp_path / "venv/bin/delayq", *json.loads(step("CMD")), "--burst", "--http-port", "0"]
    environment = clean_environment() | {"DELAYQ_URL": redis_url}
    done = run(command, cwd=tmp_path / "app", capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "remember the wash\n"), done.stderr
    health = json.loads(step("HEALTHCHECK").partition("CMD ")[2])
    done = run([tmp_path / "venv/bin" / health[0], *health[1:]], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def clean_environment() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}


def test_compose_keeps_redis_durable_and_mounts_what_is_there():
    services = COMPOSE["services"]
    options = dict(zip(services["redis"]["command"][1::2], services["redis"]["command"][2::2], strict=True))
    assert options.items() >= {"--appendonly": "yes", "--maxmemory-policy": "noeviction"}.items()
    assert "redis:/data" in services["redis"]["volumes"]
    mounted = [volume.split(":") for service in services.values() for volume in service.get("volumes", [])]
    for source, target, *_ in mounted:
        assert (DOCKER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
        assert target.startswith("/")
    build = services["worker"]["build"]
    assert (DOCKER / build["context"] / "Dockerfile").exists()
    for service in services.values():
        assert set(service.get("depends_on", {})) <= {name for name in services if "healthcheck" in services[name]}
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_redis_takes_the_options_of_compose(start_redis):
    start_redis(*COMPOSE["services"]["redis"]["command"][1:])


def test_prometheus_of_compose_asks_the_same_jobs_with_the_same_rules():
    ours = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    other = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert [job["job_name"] for job in ours["scrape_configs"]] == [job["job_name"] for job in other["scrape_configs"]]
    assert ours["rule_files"] == other["rule_files"] == [ALERTS.name]
    exporter, workers = ours["scrape_configs"]
    assert exporter["static_configs"] == [{"targets": ["exporter:9120"]}]
    (found,) = workers["dns_sd_configs"]
    assert set(found["names"]) <= set(COMPOSE["services"])
    assert str(found["port"]) in COMPOSE["services"]["worker"]["command"]


def test_grafana_gets_the_dashboard_and_its_data():
    targets = {volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]}
    (provider,) = yaml.safe_load((DOCKER / "grafana" / "dashboards.yml").read_text())["providers"]
    assert f"{provider['options']['path']}/{DASHBOARD.name}" in targets
    (source,) = yaml.safe_load((DOCKER / "grafana" / "datasources.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["url"].split("//")[1].split(":")[0] in COMPOSE["services"]


# systemd


def test_units_are_told_what_the_worker_says():
    service = unit("delayq-worker@.service")["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "mixed", "always")
    assert int(service["WatchdogSec"]) >= 30  # a shorter one takes a slow Redis for a loop that hangs


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", sorted(path.name for path in SYSTEMD.iterdir()))
def test_systemd_accepts_the_units(name, tmp_path):
    text = (SYSTEMD / name).read_text().replace("/srv/app/.venv/bin/delayq", sys.executable)  # which must be there
    (tmp_path / name).write_text(text)
    done = run(["systemd-analyze", "--man=no", "verify", tmp_path / name], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")  # it warns of an unknown key, and returns 0


# Kubernetes


def test_manifests_fit_together():
    for name, pod in PODS.items():
        deployment = MANIFESTS["Deployment", name]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert deployment["selector"]["matchLabels"] == labels
        (container,) = pod["containers"]
        (port,) = container["ports"]
        assert str(port["containerPort"]) in container["args"]
        annotations = deployment["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/port"] == str(port["containerPort"])
        probes = {key: value["httpGet"] for key, value in container.items() if key.endswith("Probe")}
        assert {probe["port"] for probe in probes.values()} == {port["name"]}
        assert probes["livenessProbe"]["path"] == "/livez"
        assert probes["readinessProbe"]["path"] == "/readyz"
        assert {mount["name"] for mount in container.get("volumeMounts", [])} == {
            one["name"] for one in pod.get("volumes", [])
        }
    budget, service = (
        MANIFESTS["PodDisruptionBudget", "delayq-worker"]["spec"],
        MANIFESTS["Service", "delayq-exporter"]["spec"],
    )
    assert budget["selector"] == MANIFESTS["Deployment", "delayq-worker"]["spec"]["selector"]
    assert service["selector"] == MANIFESTS["Deployment", "delayq-exporter"]["spec"]["selector"]["matchLabels"]
    assert service["ports"][0]["targetPort"] == "http"


def test_keda_scales_the_workers_by_series_that_exist(redis_url):
    scaled = yaml.safe_load(KEDA.read_text())["spec"]
    target = scaled["scaleTargetRef"]["name"]
    assert "replicas" not in MANIFESTS["Deployment", target]["spec"]  # or each deployment would undo what KEDA has set
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_delay_msg(1)
        found = samples_of(QueueCollector("reminders", url=redis_url))
    for trigger in scaled["triggers"]:
        (series,) = re.findall(r"\w+\{[^}]*\}", trigger["metadata"]["query"])
        assert series in found
        assert float(trigger["metadata"]["threshold"]) > 0
    names: Any = [trigger["metadata"]["query"].split("(")[1].split("{")[0] for trigger in scaled["triggers"]]
    assert names == ["delayq_queue_lag_seconds", "delayq_messages_due"]
