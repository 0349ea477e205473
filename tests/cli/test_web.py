"""`delayq web`: what it refuses to start with, and that it serves until a signal."""

from __future__ import annotations

import re
import socket
import urllib.request

import pytest

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

TOKEN = "a-token-of-24-characters"


def test_bad_input_is_one_line(cli, tmp_path):
    (tmp_path / "none.toml").write_text("[ada]\n")
    (tmp_path / "wrong.toml").write_text("[ada")
    for words, problem in [
        (("--host", "0.0.0.0"), "others could reach the dashboard"),
        (("--host", "::"), "others could reach the dashboard"),
        (("--host", ""), "others could reach the dashboard"),
        (("--host", "queues.example"), "others could reach the dashboard"),
        (("--token", "short"), "at least 16"),
        (("--host", "0.0.0.0", "--token", "short"), "at least 16"),
        (("--viewers", "none.toml"), "need tokens"),
        (("--viewers", "wrong.toml"), "is no TOML"),
        (("--hostname", "queues.example", "--write"), "other than localhost"),
        (("--viewers", "missing.toml"), "No such file"),
        (("--token", TOKEN, "--proxy-header", "X-User"), "choose one"),
        (("--queues", "a b"), "--queues must be"),
        (("--port", "65536"), "--port"),
    ]:
        refused = cli("web", *words)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), words
        assert problem in refused.line, words
        assert "short" not in refused.line
    assert cli("web", env={"DELAYQ_WEB_TOKEN": "short"}).code == 2
    assert "is empty" in cli("web", env={"DELAYQ_WEB_TOKEN": ""}).line


def test_port_that_is_taken_is_one_line(cli):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = cli("web", "--port", port)
        assert (refused.code, refused.line) == (1, f"cannot listen on 127.0.0.1:{port}: Address already in use")
    assert cli("web", "--token", TOKEN, "--host", "no such host").code == 1


def test_without_the_extra_it_names_it(cli, without):
    without("starlette.applications", "delayq.web")
    refused = cli("web")
    assert (refused.code, refused.line) == (2, "the dashboard needs the extra: pip install 'delayq[web]'")


@pytest.mark.long
def test_it_serves_until_a_signal(queue, start):
    queue.send_delay_msg(1, "1h")
    program = start("web", "--port", "0", "--log-json")
    program.says("serving http://")
    address = re.search(r"serving (http://\S+)/, read-only", program.err)[1]
    with urllib.request.urlopen(address, timeout=10) as reply:
        assert "reminders" in reply.read().decode()
        assert "Server" not in reply.headers
    with urllib.request.urlopen(f"{address}/live?view=queues", timeout=10) as stream:
        assert stream.readline() == b"event: figures\r\n"
        program.signal()
        assert program.ends() == 0
    assert "stopped" in program.err
    assert "Traceback" not in program.err
