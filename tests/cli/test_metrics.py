"""`delayq metrics`, and `--http-port` of a worker."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request

import pytest

from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

APP = """
from delayq import DelayQueue

queue = DelayQueue("reminders", tick=0.2)


@queue.callback
def remind(message):
    pass
"""


def get(url):
    """Return status and text of a reply; None if nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def address_of(program):
    program.says("serving http://")
    return re.search(r"serving (http://\S+)/metrics", program.err)[1]


def test_once_prints_the_metrics(cli, queue):
    assert "\ndelayq_build_info{" in cli("metrics", "--once").out
    queue.send_delay_msg(1, "1h")
    for words in ((), ("reminders",), ("--queues", "rem*")):
        ended = cli("metrics", "--once", *words)
        assert (ended.code, ended.err) == (0, "")
        assert 'delayq_messages{queue="reminders",state="pending"} 1.0\n' in ended.out
    assert "reminders" not in cli("metrics", "--once", "--queues", "other*").out


def test_bad_input_is_one_line(cli, queue):
    queue.send_delay_msg(1, "1h")
    missing = cli("metrics", "remindres", "--once")
    assert (missing.code, missing.line) == (3, "no queue named 'remindres', did you mean 'reminders'?")
    for words in (("reminders", "--queues", "a*"), ("--queues", "a b"), ("a b",), ("--port", "65536")):
        refused = cli("metrics", "--once", *words)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    away = cli("--url", "redis://:secret@127.0.0.1:1", "--timeout", "100ms", "metrics", "--once")
    assert (away.code, away.out, "cannot be reached" in away.line, "secret" in away.err) == (69, "", True, False)


def test_without_the_extra_it_names_it(cli, importing, without):
    (importing / "app.py").write_text(APP)
    without("prometheus_client", "delayq.metrics")
    for words in (("metrics", "--once"), ("worker", "app", "--burst", "--http-port", "0")):
        refused = cli(*words)
        assert (refused.code, refused.line) == (2, "metrics need the extra: pip install 'delayq[prometheus]'")


def test_a_port_that_is_taken_is_one_line(cli, importing, monkeypatch):
    monkeypatch.setattr("delayq.cli.worker.metrics.configure_logging", lambda *_, **__: None)
    monkeypatch.setattr("delayq.worker.parts.meter._counting", False)  # what a worker sets for its process
    (importing / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for words in (("metrics", "--port"), ("worker", "app", "--http-port")):
            refused = cli(*words, port)
            assert (refused.code, refused.line) == (1, f"cannot listen on 127.0.0.1:{port}: Address already in use")
    for host in ("no such host", "\udcff", "a" * 100):
        refused = cli("metrics", "--host", host, "--port", port)
        assert (refused.code, refused.line.startswith("cannot listen on ")) == (1, True)


@pytest.mark.long
def test_the_exporter_serves_until_a_signal_and_outlives_redis(start_redis, start):
    server = start_redis()
    program = start("--timeout", "1s", "metrics", "--port", "0", url=server.url)
    url = address_of(program)
    assert (get(f"{url}/readyz")[0], get(f"{url}/livez")[0], get(f"{url}/metrics")[0]) == (200, 200, 200)
    server.stop()
    assert (get(f"{url}/readyz")[0], get(f"{url}/livez")[0], get(f"{url}/metrics")[0]) == (503, 200, 503)
    server.start()
    wait_until(lambda: get(f"{url}/metrics")[0] == 200)
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
def test_processes_of_a_worker_add_up_and_vanish(start, queue, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    program = start("worker", "app", "--processes", "2", "--http-port", "0", env={"DELAYQ_WORKER_HTTP_HOST": "::1"})
    url = address_of(program)
    assert url.startswith("http://[::1]:")

    def processes():
        return set(re.findall(r'^delayq_worker_up\{process="(\d)"\} 1\.0$', get(f"{url}/metrics")[1], re.MULTILINE))

    def acked():
        text = get(f"{url}/metrics")[1]
        return sum(
            map(float, re.findall(r'^delayq_worker_messages_total\{.*outcome="acked".*\} (\d+)', text, re.MULTILINE))
        )

    program.until(lambda: processes() == {"1", "2"}, "both processes consume")
    queue.send_many(range(50))
    program.until(lambda: acked() == 50, "the counts of both")
    assert (get(f"{url}/readyz"), get(f"{url}/livez")) == ((200, "ok\n"), (200, "ok\n"))
    program.signal()
    assert program.ends() == 0
