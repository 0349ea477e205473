"""TLS on a real server with a test authority: a valid certificate works; with any other nothing is sent."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
import trustme

from delayq import AsyncDelayQueue, CannotConnectError, ConfigurationError, DelayQueue, UnavailableError
from delayq.broker.transport import clients
from delayq.testing.redis_server import free_port
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.faults

PASSWORD = "s3cr3t"
LONG_AGO = datetime.now(UTC) - timedelta(days=30)


class Tls(NamedTuple):
    """A server that listens for TLS, and its URL for a client's certificates."""

    server: RedisServer
    port: int

    def url(self, *, ca: Path | None = None, host: str = "localhost", client: tuple[Path, Path] | None = None) -> str:
        options = [] if ca is None else [f"ssl_ca_certs={ca}"]
        if client is not None:
            options += [f"ssl_certfile={client[0]}", f"ssl_keyfile={client[1]}"]
        return f"rediss://:{PASSWORD}@{host}:{self.port}/0?" + "&".join(options)

    def heard(self) -> set[str]:
        """Return the commands that the server received, without those of the test."""
        with redis.Redis.from_url(self.server.url, password=PASSWORD) as client:
            return {name.removeprefix("cmdstat_") for name in client.info("commandstats")} - {
                *("auth", "info", "config|resetstat", "hello", "client|setinfo", "ping")
            }


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="module")
def trusted(ca, tmp_path_factory) -> Path:
    """The file that names our authority."""
    path: Path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def make(tmp_path_factory) -> Callable[[trustme.LeafCert], tuple[Path, Path]]:
    """`make(certificate)` writes a certificate and its key to files."""
    return lambda certificate: write(certificate, tmp_path_factory.mktemp("made"))


def write(cert: trustme.LeafCert, folder: Path) -> tuple[Path, Path]:
    """Write a certificate and its key."""
    chain, key = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(b"".join(pem.bytes() for pem in cert.cert_chain_pems))
    cert.private_key_pem.write_to_path(key)
    return chain, key


Serve = Callable[..., Tls]


@pytest.fixture
def serve(trusted, make) -> Iterator[Serve]:
    """`serve(certificate)` starts a server that shows it, and listens on no port without TLS."""
    servers = []

    def start(certificate: trustme.LeafCert, *, asks_clients: bool = False) -> Tls:
        chain, key = make(certificate)
        port = free_port()
        server = RedisServer(
            *("--tls-port", str(port), "--port", "0", "--bind", "127.0.0.1", "--requirepass", PASSWORD),
            *("--tls-cert-file", str(chain), "--tls-key-file", str(key), "--tls-ca-cert-file", str(trusted)),
            *("--tls-auth-clients", "yes" if asks_clients else "no"),
        )
        servers.append(server)
        server.start()
        with redis.Redis.from_url(server.url, password=PASSWORD) as client:
            client.config_resetstat()
        return Tls(server, port)

    yield start
    for server in servers:
        server.close()


def refused(face: Any, url: str) -> str:
    """Try to send; return the error text, which must come at once, long before the deadline of 30 s."""
    queue = face.open("reminders", url=url)
    began = time.monotonic()
    with pytest.raises(CannotConnectError) as caught:
        queue.send_delay_msg({"user": 42})
    assert time.monotonic() - began < 15
    queue.close()
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert PASSWORD not in said
    return said


# Accepted


def test_certificate_of_a_trusted_authority_is_accepted(serve, ca, trusted, face, cli):
    tls = serve(ca.issue_cert("localhost", "127.0.0.1"))
    for host in ("localhost", "127.0.0.1"):
        seen: list[Any] = []
        queue = face.open("reminders", url=tls.url(ca=trusted, host=host))
        queue.callback(lambda message, seen=seen: seen.append(message.payload))
        queue.send_delay_msg({"user": 42})
        queue.run(burst=True)
        queue.close()
        assert seen == [{"user": 42}]
    ended = cli(tls.url(ca=trusted), "queues")
    assert (ended.code, ended.err) == (0, "")
    assert "reminders" in ended.out


def test_client_certificate_of_the_url_is_used(serve, ca, trusted, face, make):
    tls = serve(ca.issue_cert("localhost"), asks_clients=True)
    mine = make(ca.issue_cert("billing@example.org"))
    queue = face.open("reminders", url=tls.url(ca=trusted, client=mine))
    assert queue.send_delay_msg({"user": 42}).new
    queue.close()


# Refused


def test_client_without_a_required_certificate_is_refused(serve, ca, trusted, face):
    tls = serve(ca.issue_cert("localhost"), asks_clients=True)
    refused(face, tls.url(ca=trusted))
    assert tls.heard() == set()


def test_client_certificate_of_another_authority_is_refused(serve, ca, trusted, face, make):
    tls = serve(ca.issue_cert("localhost"), asks_clients=True)
    other = make(trustme.CA().issue_cert("localhost"))
    refused(face, tls.url(ca=trusted, client=other))
    assert tls.heard() == set()


WRONG = {
    "another host": (lambda ca: ca.issue_cert("redis.example.org"), True, "Hostname mismatch"),
    "another address": (lambda ca: ca.issue_cert("127.0.0.2"), True, "Hostname mismatch"),
    "expired": (
        lambda ca: ca.issue_cert("localhost", not_before=LONG_AGO, not_after=LONG_AGO + timedelta(1)),
        True,
        "expired",
    ),
    "of an unknown authority": (lambda ca: trustme.CA().issue_cert("localhost"), True, "certificate"),
    "not trusted without options": (lambda ca: ca.issue_cert("localhost"), False, "certificate verify failed"),
}


@pytest.fixture(params=WRONG)
def wrong(request, serve, ca, trusted) -> tuple[Tls, str, str]:
    """A server with an invalid certificate, its URL, and the expected error."""
    issue, with_authority, reason = WRONG[request.param]
    tls = serve(issue(ca))
    return tls, tls.url(ca=trusted if with_authority else None), reason


def test_invalid_server_certificate_is_refused(wrong, face, cli):
    tls, url, reason = wrong
    assert reason in refused(face, url)
    ended = cli(url, "--timeout", "1h", "queues")
    assert (ended.code, ended.out) == (69, "")
    assert len(ended.err.splitlines()) == 1
    assert reason in ended.err
    assert PASSWORD not in ended.err
    assert tls.heard() == set()


def test_self_signed_certificate_is_refused(serve, tmp_path, face):
    alone = trustme.CA(key_type=trustme.KeyType.ECDSA)
    tls = serve(alone.issue_cert("localhost"))
    assert "certificate" in refused(face, tls.url())
    assert tls.heard() == set()


def test_server_without_tls_is_refused(face):
    with RedisServer(tcp=True) as server:
        options = "socket_timeout=0.3&socket_connect_timeout=0.3"
        queue = face.open("reminders", url=f"rediss://localhost:{server.port}/0?{options}", deadline="300ms")
        with pytest.raises((UnavailableError, CannotConnectError)):  # Redis may reply, or wait for the rest of a line
            queue.send_delay_msg(1)
        queue.close()


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_missing_file_of_the_url_is_refused_when_the_queue_is_opened(face, scheme, name):
    master = "master=main&" if "sentinel" in scheme else ""
    with pytest.raises(ConfigurationError, match=f"{name} of the url cannot be read: No such file"):
        face.open("reminders", url=f"{scheme}://localhost/?{master}{name}=/nowhere/s3cr3t.pem")


def test_missing_file_of_a_passed_client_is_said_at_once(face):
    client = face.do(lambda: face.client("rediss://localhost:1", ssl_ca_certs="/nowhere/ca.pem"))
    with RedisServer(tcp=True) as server:
        client.connection_pool.connection_kwargs["port"] = server.port
        with pytest.raises(CannotConnectError, match="a file for TLS cannot be read"):
            face.open("reminders", redis=client).send_delay_msg(1)


def test_connection_that_the_system_forbids_is_tried_again_without_tls(face, monkeypatch):
    """A local firewall answers a connection with EPERM, and may let the next one pass."""

    def forbid(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    async def forbid_async(*_, **__):
        forbid()

    monkeypatch.setattr(socket.socket, "connect", forbid)
    monkeypatch.setattr(asyncio, "open_connection", forbid_async)
    queue = face.open("reminders", url="redis://127.0.0.1:1/0", deadline="50ms")
    with pytest.raises(UnavailableError, match=r"cannot be reached at 127\.0\.0\.1.*Operation not permitted"):
        queue.send_delay_msg(1)
    queue.close()


def test_client_without_tls_is_refused(serve, ca, face):
    tls = serve(ca.issue_cert("localhost"))
    queue = face.open("reminders", url=f"redis://:{PASSWORD}@localhost:{tls.port}/0", deadline="300ms")
    with pytest.raises(ConnectionError):
        queue.send_delay_msg(1)
    queue.close()
    assert tls.heard() == set()


@pytest.mark.parametrize("kind", [DelayQueue, AsyncDelayQueue])
def test_certificates_are_verified_by_default(kind):
    options = kind("reminders", url="rediss://localhost").executor.client.connection_pool.connection_kwargs
    made = kind("reminders", url="rediss://localhost").executor.client.connection_pool.connection_class(**options)
    context = getattr(made, "ssl_context", made)
    assert str(getattr(context, "cert_reqs", "required")) in {"required", "2", "VerifyMode.CERT_REQUIRED"}
    assert context.check_hostname


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_host_name_is_always_checked(scheme, monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(redis.SSLConnection, "__init__", lambda self, **options: seen.append(options))
    monkeypatch.setattr(clients, "_accepted", set())
    DelayQueue(
        "reminders", url=f"{scheme}://localhost/?master=main" if "sentinel" in scheme else f"{scheme}://localhost"
    )
    assert [options["ssl_check_hostname"] for options in seen] == [True] * len(seen)
    assert seen
