"""The HTTP server of metrics and probes, and the one that asks the processes of a worker."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from delayq.errors import UnavailableError
from delayq.metrics import process_metrics
from delayq.metrics.endpoint import MAX_CLIENTS, Endpoint
from delayq.metrics.families import Families
from delayq.metrics.process_metrics import ProcessMetrics
from tests.metrics.samples import samples_of
from tests.support.waiting import wait_until


class Source:
    """A collector with one counter and one histogram, or an error."""

    error: Exception | None = None

    def collect(self):
        if self.error is not None:
            raise self.error
        families = Families()
        families.counter("some_total", "Some", 7, queue='a"b\n', name="x")
        families.histogram("took_seconds", "Took", [0.5, 1], [1, 0, 2], 9.5, name="x")
        return families


@pytest.fixture
def serve():
    """`serve(address, source, **probes)` starts an endpoint that the end of the test closes."""
    with ExitStack() as stack:

        def start(address=("127.0.0.1", 0), source=None, **probes):
            endpoint = Endpoint(address, source or Source(), **probes)
            endpoint.start()
            stack.callback(endpoint.close)
            return endpoint

        yield start


def get(endpoint, path, method="GET", **headers):
    """Return status, content type and text of a reply."""
    request = urllib.request.Request(f"{endpoint.url}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_in_both_formats(serve):
    endpoint = serve()
    status, kind, text = get(endpoint, "/metrics?x=1")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'some_total{name="x",queue="a\\"b\\n"} 7.0\n' in text
    assert '# TYPE took_seconds histogram\ntook_seconds_bucket{le="0.5",name="x"} 1.0\n' in text
    assert 'took_seconds_bucket{le="+Inf",name="x"} 3.0\ntook_seconds_count{name="x"} 3.0\n' in text
    status, kind, text = get(endpoint, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.partition(";")[0], text.endswith("# EOF\n")) == (200, "application/openmetrics-text", True)
    assert get(endpoint, "/metrics", "HEAD")[::2] == (200, "")


def test_probes_and_other_paths(serve):
    problem = ""
    endpoint = serve(dead=lambda: "", unready=lambda: problem)
    assert get(endpoint, "/livez") == get(endpoint, "/readyz") == (200, "text/plain; charset=utf-8", "ok\n")
    problem = "draining"
    assert get(endpoint, "/readyz")[::2] == (503, "draining\n")
    assert get(endpoint, "/")[::2] == (404, "nothing here: see /metrics, /livez and /readyz\n")
    assert get(endpoint, "/metrics", "POST")[0] == 501


def test_scrape_that_fails_says_why_once_in_the_log(serve, caplog):
    caplog.set_level("INFO", "delayq.metrics")
    source = Source()
    endpoint = serve(source=source)
    source.error = UnavailableError("Redis does not answer")
    for _ in range(2):
        assert get(endpoint, "/metrics")[::2] == (503, "Redis does not answer\n")
    source.error = None
    assert get(endpoint, "/metrics")[0] == 200
    assert caplog.messages == ["metrics cannot be read: Redis does not answer", "metrics can be read again"]
    source.error = ValueError("secret")
    assert get(endpoint, "/metrics")[::2] == (500, "a collector failed: ValueError, see the log\n")


def test_slow_client_holds_up_nobody(serve):
    endpoint = serve()
    with socket.create_connection(endpoint.server_address[:2]) as idle:
        idle.sendall(b"GET /met")
        assert get(endpoint, "/livez")[0] == 200


def test_port_that_is_taken(serve):
    endpoint = serve()
    with pytest.raises(OSError, match="Address already in use"):
        Endpoint(endpoint.server_address[:2], Source())


def test_processes_add_up_with_a_label_each(serve, tmp_path):
    processes = ProcessMetrics(tmp_path)
    assert (processes.dead(), processes.unready()) == ("", "starting")
    assert samples_of(processes) == {"delayq_worker_processes": 0}
    first = serve(tmp_path / "1")
    serve(tmp_path / "2", unready=lambda: "starting", dead=lambda: "held up")
    found = samples_of(processes)
    assert found["delayq_worker_processes"] == 2
    assert {found[f'some_total{{name="x",process="{number}",queue="a"b\n"}}'] for number in (1, 2)} == {7}
    assert found['took_seconds_bucket{le="+Inf",name="x",process="2"}'] == 3
    assert (processes.dead(), processes.unready()) == ("process 2: held up", "process 2: starting")
    first.close()  # as a process that was killed, which leaves its socket
    assert samples_of(processes)["delayq_worker_processes"] == 1
    assert not any('process="1"' in name for name in samples_of(processes))
    serve(tmp_path / "1")
    assert samples_of(processes)["delayq_worker_processes"] == 2


def test_process_that_does_not_answer_is_dead(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(process_metrics, "ANSWERS_WITHIN", 0.1)
    serve(tmp_path / "1")
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "2"))
        stopped.listen()
        processes = ProcessMetrics(tmp_path)
        assert processes.dead() == processes.unready() == "process 2: no answer within 0.1 s"
        assert samples_of(processes)["delayq_worker_processes"] == 1


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /large HTTP/1.0\r\n\r\n"], ids=["nothing", "half", "unread"])
def test_slow_clients_keep_no_other_out_and_take_no_more_threads(serve, sent):
    endpoint = serve(unready=lambda: "x" * 10_000_000)
    endpoint.probes["/large"] = endpoint.probes["/readyz"]
    with ExitStack() as clients:
        before = threading.active_count()
        for _ in range(MAX_CLIENTS + 4):
            client = clients.enter_context(socket.create_connection(endpoint.server_address))
            client.sendall(sent)
            assert get(endpoint, "/livez")[0] == 200
        wait_until(lambda: threading.active_count() <= before + MAX_CLIENTS)
        assert len(endpoint._clients) <= MAX_CLIENTS
    wait_until(lambda: threading.active_count() <= before and not endpoint._clients)


def test_who_comes_while_all_are_being_answered_is_refused(serve):
    go_on = threading.Event()
    endpoint = serve(dead=lambda: "" if go_on.wait(20) else "never")
    with ThreadPoolExecutor(MAX_CLIENTS) as pool:
        asked = [pool.submit(get, endpoint, "/livez") for _ in range(MAX_CLIENTS)]
        wait_until(lambda: sum(endpoint._clients.values()) == MAX_CLIENTS)
        with pytest.raises((OSError, http.client.HTTPException)):
            get(endpoint, "/readyz")
        go_on.set()
        assert [one.result()[0] for one in asked] == [200] * MAX_CLIENTS
    wait_until(lambda: not endpoint._clients)
    assert get(endpoint, "/readyz")[0] == 200
