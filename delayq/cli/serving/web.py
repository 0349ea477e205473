"""`delayq web`: the dashboard in a browser."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import CommandError
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import PATTERN, engine_option, reveal_option
from delayq.cli.support.session import Session
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog
from delayq.web.dashboard import web_app
from delayq.web.viewers import read_viewers

log = SafeLog("delayq.web")

VARIABLE = "DELAYQ_WEB_TOKEN"
STOPS_WITHIN = 3
"""Seconds that requests may take to end once a signal has come."""
BACKLOG = 128


@click.command()
@engine_option(Feature.HISTORY)
@click.option("--port", type=click.IntRange(0, 65535), default=9130, show_default=True, help="Listen on this port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address; 0.0.0.0 for all.")
@click.option("--write", is_flag=True, help="Allow actions: cancel, redrive, pause and so on.")
@reveal_option
@click.option("--token", metavar="TEXT", help="Ask for this token, best given as DELAYQ_WEB_TOKEN.")
@click.option(
    "--viewers", type=click.File("r", encoding="utf-8"), metavar="FILE", help="Let in the viewers of a TOML file."
)
@click.option("--proxy-header", metavar="NAME", help="Trust a proxy, which names the viewer in this header.")
@click.option("--hostname", "hosts", multiple=True, metavar="NAME", help="Serve under this name too; repeatable.")
@click.option(
    "--queues", multiple=True, type=PATTERN, metavar="PATTERN", help="Show queues like this alone; repeatable."
)
@log_options
@click.pass_obj
def web(
    session: Session,
    *,
    port: int,
    host: str,
    write: bool,
    reveal: bool,
    token: str | None,
    viewers: IO[str] | None,
    proxy_header: str | None,
    hosts: tuple[str, ...],
    queues: tuple[str, ...],
    log_level: str,
    log_json: bool,
) -> None:
    """Serve the dashboard: queues, messages, workers, schedules, forecast (pip install 'delayq[web]').

    It listens on this machine and changes nothing, unless you say so. On any other address it needs --token,
    --viewers or --proxy-header. Every action is logged with who did it. It needs the rights of an inspector, and with
    --write those of an admin. SIGTERM or SIGINT (Ctrl-C) stops it.

    A file of viewers has a table for each: [ada], with token = "…", queues = ["orders", "mail-*"], write = false.
    With --proxy-header, it says who may look, and needs no tokens.
    """
    from delayq.web.viewers import address_of, check_bind

    if token is None and os.environ.get(VARIABLE) == "":
        raise click.UsageError(f"{VARIABLE} is empty: give a token, or unset it")
    known = None if viewers is None else read_viewers(viewers.read())
    check_bind(host, token=token, viewers=known or (), proxy_header=proxy_header)
    address = address_of(host)
    own = [] if not host or (address and address.is_unspecified) else [host]
    app = web_app(
        write=write,
        reveal=reveal,
        token=token,
        viewers=known,
        proxy_header=proxy_header,
        hosts=[*hosts, *own],
        queues=queues or ("*",),
        **session.options,
    )
    with _listening(host, port) as socket:
        configure_logging(log_level, as_json=log_json)
        _serve(app, socket, writes=write)


@contextmanager
def _listening(host: str, port: int) -> Iterator[Any]:
    """Listen on an address; raise `CommandError` if it cannot be used."""
    import socket

    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, ValueError) as error:  # a host that no name can be is a ValueError
        text = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        raise CommandError(f"cannot listen on {host}:{port}: {text}") from error
    with listening:
        yield listening


def _serve(app: Any, socket: Any, *, writes: bool) -> None:
    """Serve until a signal comes."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Leave the signals to the command."""
            yield

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=STOPS_WITHIN,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = Server(config)
    host, port = socket.getsockname()[:2]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    log.info("serving http://%s/, %s", where, "with actions" if writes else "read-only")
    with handle_signals(server.handle_exit):
        server.run(sockets=[socket])
    app.state.site.source.close()
    log.info("stopped")
