"""An HTTP server in threads of its own: `/metrics` for Prometheus, and the probes `/livez` and `/readyz`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from delayq.errors import DelayqError
from delayq.metrics.families import choose_encoder
from delayq.queue.consuming.loaded import load_all
from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import start_needed

log = SafeLog("delayq.metrics")

CLIENT_TIMEOUT = 10.0
"""Seconds that a client may take to send its request, and to read the reply."""

MAX_CLIENTS = 16
"""Clients that are served at a time, each by a thread: a scraper or two and the probes need a few of them."""
PAUSE = 1.0
"""Seconds to wait after an error of the port itself."""

CLOSES_WITHIN = 1.0
"""Seconds to wait for the thread that accepts connections."""

Address = tuple[str, int] | Path
"""A host and a port, 0 for any free one, or the path of a Unix socket."""


class Endpoint(ThreadingMixIn, TCPServer):
    """Serves metrics and probes until it is closed.

    Many clients that are slow to send or to read keep no other out: a new one takes the place of the first of them.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(
        self, address: Address, collector: Any, *, dead: Callable[[], str] = str, unready: Callable[[], str] = str
    ) -> None:
        """Listen at once; raises `OSError` if the address cannot be used.

        The metrics are those of `collector`, which may raise `DelayqError`: the scrape then fails with 503. `dead` and
        `unready` return what the probes are to report, '' for nothing.
        """
        self.collector = collector
        self.probes = {"/livez": dead, "/readyz": unready}
        self.failing = False
        """Whether the last scrape has failed."""
        self._closing = False
        self._clients: dict[Any, bool] = {}
        """The sockets of the clients, in their order, and whether the reply to each is being made: it does not wait."""
        self._counting = threading.Lock()
        self._thread: threading.Thread | None = None
        if isinstance(address, Path):
            self.address_family = socket.AF_UNIX
            address.unlink(missing_ok=True)
            super().__init__(str(address), _Handler)  # type: ignore[arg-type]  # a path is the address of this family
        else:
            self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
            super().__init__(address, _Handler)

    def start(self) -> None:
        """Serve in the background."""
        load_all()
        self._thread = start_needed(self._serve, "delayq-http")

    def _serve(self) -> None:
        while not self._closing:
            try:
                self.handle_request()
            except Exception:
                log.exception("the port for metrics and probes failed, and goes on")
                time.sleep(PAUSE)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread; if there are too many, one that is waited for has to go, or this one."""
        with self._counting:
            waiting = (one for one, is_busy in self._clients.items() if not is_busy)
            left_out: Any = None if len(self._clients) < MAX_CLIENTS else next(waiting, request)
            self._clients[request] = False
            self._clients.pop(left_out, None)
        if left_out is request:
            self.shutdown_request(request)
            return
        if left_out is not None:
            with suppress(OSError):  # it has gone
                left_out.shutdown(socket.SHUT_RDWR)  # its thread ends
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no room for one more thread
            self.process_request_thread(request, client_address)

    def note(self, request: Any, *, is_busy: bool) -> None:
        """Note that the reply to a client is being made, or is sent."""
        with self._counting:
            if request in self._clients:
                self._clients[request] = is_busy

    def close_request(self, request: Any) -> None:
        """Close the connection of a client."""
        super().close_request(request)
        with self._counting:
            self._clients.pop(request, None)

    def close(self) -> None:
        """Stop at once; requests that are being answered go on."""
        self._closing = True
        with suppress(OSError):  # some systems wake nobody by this: then the thread ends with the process
            self.socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(CLOSES_WITHIN)
        self.server_close()

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"http://{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - Python's own signature
        """Log what is no more than a client that has gone away."""
        log.debug("a request failed", exc_info=True)  # noqa: LOG014 - called while it is handled

    def report(self, error: DelayqError | None) -> None:
        """Log that scrapes fail, and that they succeed again."""
        if error is not None and not self.failing:
            log.warning("metrics cannot be read: %s", error)
        elif error is None and self.failing:
            log.info("metrics can be read again")
        self.failing = error is not None


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    timeout = CLIENT_TIMEOUT

    def do_GET(self) -> None:
        self.server.note(self.request, is_busy=True)
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send_metrics()
        elif (probe := self.server.probes.get(path)) is not None:
            problem = probe()
            self._send(HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, problem or "ok")
        else:
            self._send(HTTPStatus.NOT_FOUND, f"nothing here: see /metrics, {' and '.join(self.server.probes)}")

    do_HEAD = do_GET  # noqa: N815 - Python's own name

    def _send_metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            body = encode(self.server.collector)
        except DelayqError as error:
            self.server.report(error)
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:
            log.exception("a collector of metrics failed")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, f"a collector failed: {type(error).__name__}, see the log")
        else:
            self.server.report(None)
            self._send(HTTPStatus.OK, body, content_type)

    def _send(self, status: HTTPStatus, body: bytes | str, content_type: str = "text/plain; charset=utf-8") -> None:
        self.server.note(self.request, is_busy=False)
        data = f"{body}\n".encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def version_string(self) -> str:
        """Return what clients are told of the server."""
        return "delayq"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - Python's own name
        """Log nothing of a request: probes come every few seconds."""
