"""The command line with hostile arguments, settings and input, over all verbs."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from delayq import DelayQueue, NewMessage
from delayq.cli import main
from delayq.cli.support.exit_codes import Exit
from tests.security.hostile import TEXTS

PATIENCE = 10.0
"""Seconds that one command may take: Redis is waited for 200 ms."""
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What a terminal would obey."""
ONLY_READ = {"worker", "relay", "metrics", "web", "notify", "demo", "tour", "torture", "spark"}
"""Their arguments are read and nothing is done: they run programs, or for ever."""
WAITING = {"--follow", "--watch", "--traceback", "--help"}

WORDS = [text for text in TEXTS if "\0" not in text and not re.search("[\ud800-\udfff]", text)] + ["\udcff", "\udc80a"]
words = st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
plausible = st.sampled_from(
    [
        "q",
        "hostile",
        "m",
        "5",
        "0",
        "-1",
        "1h",
        "2099-01-01T00:00Z",
        "json",
        "pending",
        "dead",
        "{}",
        '{"a": 1}',
        "-",
        "a=b",
    ]
)
MEANT = {
    "queue": "q",
    "id": "m1",
    "ids": "m2",
    "topic": "security",
    "roles": "producer",
    "run": "nightly",
    "payload": "1",
}
URLS = [
    "redis://127.0.0.1:1/0",
    "http://x",
    "unix:///nowhere",
    "redis://127.0.0.1:99999",
    "rediss://[",
    "memory://x",
    "x",
    "",
]
TABLES = [
    "[tool.delayq]\nprefix = 5\n",
    "[tool.delayq]\ntimeout = -1\n",
    "[tool.delayq]\nprefix = ['a', 'b']\n",
    "[tool.delayq.send]\nretries = 'many'\nheader = 7\n",
    "[tool.delayq.list]\nlimit = 1e400\n",
    "[tool.delayq.dead]\nlist = 3\n",
    "[tool]\ndelayq = 5\n",
    "tool = 1\n",
    "[tool.delayq]\n\x1b[31m = 1\n",
    "[tool.delayq]\n'\\u001b]0;x\\u0007' = 1\n",
    "[tool.delayq.stats]\nevery = '5s'\n",
    "\xff",
    "=",
]


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


VERBS = list(commands(main))


@st.composite
def lines(draw: Any) -> list[str]:
    """A command line: a verb, and options and arguments of it that are right, wrong or odd."""
    path, command = draw(st.sampled_from(VERBS))
    value = plausible | plausible | words
    line = list(path)
    for param in draw(st.permutations(command.params)):
        if isinstance(param, click.Option):
            name = param.opts[-1]
            if name in WAITING or draw(st.integers(0, 5)):
                continue
            line += [name] if param.is_flag else [name, draw(value)]
        elif draw(st.integers(0, 9)):
            line.append(
                draw(st.just(MEANT.get(str(param.name), "q")) | st.just(MEANT.get(str(param.name), "q")) | value)
            )
    if draw(st.integers(0, 9)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(words))
    return [word for word in line if word not in WAITING]


@st.composite
def settings_from_outside(draw: Any) -> dict[str, str]:
    """Environment variables of options, named as the command line names them."""
    found: dict[str, str] = {}
    if draw(st.integers(0, 3)):
        return found
    path, command = draw(st.sampled_from([*VERBS, ((), main)]))
    for param in command.params:
        if isinstance(param, click.Option) and not WAITING & set(param.opts) and draw(st.booleans()):
            name = "_".join(["DELAYQ", *path, param.opts[-1].lstrip("-")]).upper().replace("-", "_")
            found[name] = draw(words | plausible)
    return found


@pytest.fixture
def only_read(monkeypatch) -> None:
    """Take the bodies out of the commands that are not to run here."""
    for path, command in VERBS:
        if path[0] in ONLY_READ and not isinstance(command, click.Group):
            monkeypatch.setattr(command, "callback", lambda *_, **__: None)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("only_read")
def test_any_command_line_ends_with_one_line_and_a_known_code(redis_url, tmp_path, monkeypatch, cases):
    monkeypatch.chdir(tmp_path)
    number = cases(2000).max_examples
    codes: Counter[int] = Counter()
    verbs: set[tuple[str, ...]] = set()
    odd = [NewMessage({"odd": "\x1b[31m\u202e"}, id=f"m{n}", headers={"\x1b]0;x\x07": "\u2066"}) for n in range(5)]

    @cases(2000)
    @example(["stats", "q"], {}, redis_url, b"", None)
    @example(["show", "q", "nothing"], {}, redis_url, b"", None)
    @example(["stats", "q"], {}, "redis://127.0.0.1:1/0", b"", None)
    @example(["stats", "--no-such-option"], {}, redis_url, b"", None)
    @example(["stats", "q"], {"DELAYQ_CONFIG": "\u00e9" * 3000}, redis_url, b"", None)
    @given(
        lines(),
        settings_from_outside(),
        st.sampled_from([None, *URLS, *([redis_url] * 20)]),
        st.binary(max_size=30) | st.sampled_from([b"", b"1\n2\n", b"\xff\n", b"[" * 5000, b'{"a": 1}\n\x1b[31m\n']),
        st.sampled_from([None] * 12 + TABLES),
    )
    def run(line, env, url, stdin, table):
        (tmp_path / "pyproject.toml").unlink(missing_ok=True)
        if table is not None:
            (tmp_path / "pyproject.toml").write_text(table, encoding="latin-1")
        given_url = {} if url is None else {"DELAYQ_URL": url}
        fallback = {"DELAYQ_URL": redis_url}
        before = time.monotonic()
        result = CliRunner().invoke(
            main, ["--timeout", "200ms", *line], input=stdin, env={**fallback, **env, **given_url}, prog_name="delayq"
        )
        took = time.monotonic() - before
        assert isinstance(result.exception, SystemExit | None), (line, result.exc_info)
        assert result.exit_code in set(Exit), (line, result.exit_code)
        said = result.stderr
        assert len(said.splitlines()) <= 1, said
        assert "internal error" not in said, said
        assert "Traceback" not in said + result.stdout
        assert not OBEYED.search(said + result.stdout), (said, result.stdout)
        assert took < PATIENCE, (line, took)
        codes[result.exit_code] += 1
        verbs.add(tuple(line))

    with DelayQueue("q", url=redis_url, events=True) as queue:
        queue.send_many(odd)
        queue.schedules.add("q", every="1h", payload="\x1b[31m\u202e", headers={"\x1b]0;x\x07": "\u2066"})
        with queue.lease() as message:
            message.reject("\x1b[31mno\u202e such user")
        for path, _ in VERBS:
            run = example(list(path), {}, redis_url, b"", None)(run)
        run()
    assert sum(codes.values()) >= number
    assert {Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNREACHABLE} <= set(codes), codes
    assert codes[Exit.OK] > number * 0.03, codes
    assert verbs >= {path for path, _ in VERBS}
