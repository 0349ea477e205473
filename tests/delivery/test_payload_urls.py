"""Webhooks whose URL is made from the payload: where they may go, judged by the address that is connected to."""

import ipaddress
import json
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq import ConfigurationError, Reject, Retry
from delayq.delivery import Webhook
from delayq.delivery.http_pool import is_public
from tests.support.deliveries import delivered
from tests.support.receivers import receiver, status


@pytest.fixture
def hooks():
    with receiver() as made:
        yield made


@pytest.fixture
def webhook():
    """`webhook("{url}")` makes a `Webhook`."""
    made = []

    def make(*args, **options) -> Webhook:
        made.append(Webhook(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.table(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::5db8:d70e", True),
        ("127.0.0.1", False),
        ("127.255.0.9", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("172.31.255.255", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("100.100.100.200", False),
        ("168.63.129.16", False),
        ("192.0.0.192", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("::127.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("2002:7f00:1::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:0:93.184.215.14", True),
        ("::ffff:0:127.0.0.1", False),
        ("::ffff:0:10.0.0.1", False),
        ("2002:5db8:d70e::1", True),
        ("2002:a00:1::1", False),
        ("64:ff9b:1::5db8:d70e", False),
        ("192.88.99.1", False),
        ("2001:0:5db8:d70e::1", False),
        ("2001:db8::1", False),
        ("2001:10::1", False),
        ("100::1", False),
        ("100:0:0:1::1", False),
        ("3fff::1", False),
        ("3fff:fff:ffff::1", False),
        ("4000::1", False),
        ("5f00::1", False),
    ],
)
def test_public_addresses(address, public):
    assert is_public(address) is public


SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
    )
]
"""The networks that IANA's registry of special IPv4 addresses does not call globally reachable, and multicast."""
FORMS = [(0xFFFF << 32, 0), (0xFFFF << 48, 0), (0x64FF9B << 96, 0), (0x2002 << 112, 80)]
"""How an IPv6 address stands for an IPv4 address: what is before it, and how many bits are behind."""


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 80) - 1), st.sampled_from([*FORMS, None]))
@example(0x7F000001, 0, FORMS[1])
def test_address_is_judged_by_the_ipv4_address_it_stands_for(number, rest, form):
    plain = ipaddress.IPv4Address(number)
    public = not any(plain in network for network in SPECIAL)
    assert is_public(str(plain)) is public
    if form:
        before, after = form
        assert is_public(str(ipaddress.IPv6Address(before | number << after | rest & ((1 << after) - 1)))) is public


@given(st.sampled_from(SPECIAL), st.integers(0), st.sampled_from(FORMS))
def test_no_form_of_a_special_address_is_public(network, number, form):
    inside = int(network.network_address) + number % network.num_addresses
    assert not is_public(str(ipaddress.IPv4Address(inside)))
    assert not is_public(str(ipaddress.IPv6Address(form[0] | inside << form[1])))


@given(st.integers(0, (1 << 128) - 1))
def test_only_global_unicast_addresses_and_forms_of_ipv4_are_public(number):
    address = ipaddress.IPv6Address(number)
    stands_for_ipv4 = any(number >> (after + 32) == before >> (after + 32) for before, after in FORMS)
    assert number >> 125 == 1 or stands_for_ipv4 or not is_public(str(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_payload_that_names_a_private_host_is_rejected_and_nothing_is_sent(hooks, webhook, host):
    with pytest.raises(Reject, match=r"not public: .* --allow-private$") as raised:
        webhook("{url}")(delivered({"url": f"http://{host}:{hooks.port}/?key=s3cr3t"}))
    assert "s3cr3t" not in str(raised.value)
    assert host not in str(raised.value)
    assert not hooks.requests


@pytest.mark.parametrize("template", ["http://{host}/x", "http://127.0.0.{host}/x", "http://127.0.0.1:{port}/x"])
def test_host_and_port_that_a_payload_completes_are_judged_too(hooks, webhook, template):
    host = "127.0.0.1" if "//{" in template else "1"
    with pytest.raises(Reject, match="not public"):
        webhook(template)(delivered({"host": host, "port": hooks.port}))
    assert not hooks.requests


def test_private_hosts_can_be_allowed(hooks, webhook):
    webhook("{url}", allow_private=True)(delivered({"url": hooks.url}))
    (request,) = hooks.requests
    assert request.path == "/hooks?key=s3cr3t"
    assert request.headers["host"] == f"127.0.0.1:{hooks.port}"
    assert json.loads(request.body)["payload"] == {"url": hooks.url}


def test_operator_may_name_any_host_and_leave_the_path_to_the_payload(hooks, webhook):
    hook = webhook(f"http://127.0.0.1:{hooks.port}/u/{{user.id}}?q={{q}}")
    hook(delivered({"user": {"id": "a/../b?x#y@z"}, "q": "ä&b=c"}))
    (request,) = hooks.requests
    assert request.path == "/u/a%2F..%2Fb%3Fx%23y%40z?q=%C3%A4%26b%3Dc"
    for id in (".", ".."):
        with pytest.raises(Reject, match=r"'.' or '..'"):
            hook(delivered({"user": {"id": id}, "q": ""}))


def resolving(monkeypatch, *replies):
    """Let the next look-ups of names give these addresses in turn, the last one for ever."""
    left, real = list(replies), socket.getaddrinfo

    def look_up(host, port, *args, **options):
        if host != "rebound.example.com":
            return real(host, port, *args, **options)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return left


def test_name_that_is_rebound_reaches_no_private_address(hooks, webhook, monkeypatch):
    connected = []

    def connect(address, *_args, **_options):
        connected.append(address[0])
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    resolving(monkeypatch, ["93.184.215.14"], ["127.0.0.1"])
    hook, message = webhook("{url}"), delivered({"url": f"http://rebound.example.com:{hooks.port}/"})
    with pytest.raises(Retry, match=r"^the payload's webhook: "):
        hook(message)
    with pytest.raises(Reject, match="not public"):
        hook(message)
    assert connected == ["93.184.215.14"]  # the address that was judged, and no second look-up


def test_one_private_address_among_public_ones_is_enough(hooks, webhook, monkeypatch):
    resolving(monkeypatch, ["93.184.215.14", "127.0.0.1"])
    with pytest.raises(Reject, match="not public"):
        webhook("{url}")(delivered({"url": f"http://rebound.example.com:{hooks.port}/"}))


def test_proxy_is_not_asked_for_a_payload_s_host(hooks, webhook, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{hooks.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(Reject, match="not public"):
        webhook("{url}")(delivered({"url": "http://127.0.0.1:9/"}))
    assert not hooks.requests


def test_redirect_to_a_private_host_is_not_followed(hooks, webhook):
    hooks.replies = [status(302, Location="http://127.0.0.1:9/")]
    with pytest.raises(Retry, match="replied 302"):
        webhook(hooks.url)(delivered({}))


@pytest.mark.parametrize("url", ["", "ftp://example.com/", "http://", "//example.com", "file:///etc/passwd", 7])
def test_payload_that_makes_no_url_is_rejected(webhook, url):
    with pytest.raises(Reject, match="the payload makes no http:// or https:// URL with a host"):
        webhook("{url}")(delivered({"url": url}))


def test_name_with_a_long_part_is_retried_as_unknown(webhook):
    with pytest.raises(Retry, match=r"^the payload's webhook: "):
        webhook("{url}")(delivered({"url": f"http://{'a' * 70}.example.com/"}))


@pytest.mark.parametrize("url", ["{url!r}", "https://{", "ftp://example.com/{id}"])
def test_invalid_templates_are_refused_on_creation(url):
    with pytest.raises(ConfigurationError, match="url"):
        Webhook(url)
