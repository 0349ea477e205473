"""`delayq docs`: renders the handbook on a terminal, prints plain Markdown elsewhere."""

import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from select import select

import pytest

from delayq.cli.admin import handbook
from tests.cli.conftest import terminal
from tests.support.processes import Process

PAGES = (page.name for page in files("delayq").joinpath("docs").iterdir())
TOPICS = sorted(name.removesuffix(".md") for name in PAGES if name.endswith(".md") and name != "README.md")


def test_lists_the_topics(cli):
    ended = cli("docs")
    lines = ended.out.splitlines()
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == TOPICS
    assert [line for line in lines if not line.startswith(" ")] == ["Start", "Use", "Recur", "Run", "Trust", "Move"]
    assert ended.err == "read a page with: delayq docs TOPIC\n"
    found = cli("docs", "--json").json["topics"]
    assert sorted(page["topic"] for page in found) == TOPICS
    folder = files("delayq").joinpath("docs")
    linked = re.findall(r"^- \[[\w-]+\]\(([\w-]+)\.md\)", folder.joinpath("README.md").read_text("utf-8"), re.MULTILINE)
    assert [page["topic"] for page in found] == linked
    assert [line.split()[0] for line in lines if line.startswith("  ")] == linked
    for page in found:
        text = folder.joinpath(f"{page['topic']}.md").read_text("utf-8")
        assert page["title"] == text.split("\n\n")[1].replace("\n", " ")


def test_search_finds_headings_first_then_lines_in_the_order_of_the_pages(cli):
    ended = cli("docs", "--search", "DEAD letter")
    found = cli("docs", "--json", "--search", "DEAD letter").json["found"]
    assert ended.out.splitlines()[0] == "dead-letter:1: Dead letter"
    assert found[0] == {"topic": "dead-letter", "line": 1, "heading": "Dead letter", "text": "Dead letter"}
    assert len(found) == len(ended.out.splitlines())
    in_heading = ["dead letter" in one["heading"].lower() for one in found]
    assert in_heading == sorted(in_heading, reverse=True)
    order = [page["topic"] for page in cli("docs", "--json").json["topics"]]
    with_lines = [one for one in found if {"dead", "letter"} <= set(re.findall("[a-z]+", one["text"].lower()))]
    places = [(order.index(one["topic"]), one["line"]) for one in with_lines if "dead" not in one["heading"].lower()]
    assert len(places) > 20
    assert places == sorted(places)
    for one in found:
        text = files("delayq").joinpath("docs", f"{one['topic']}.md").read_text("utf-8").splitlines()[one["line"] - 1]
        assert text.lstrip("# ") == one["text"].lstrip("# ")


def test_search_ranks_headings_then_lines_then_parts(tmp_path):
    one = "# One\n\nA lease of\nan expired worker.\n\n## Two\n\n- No word.\n- Expired Leases.\n"
    (tmp_path / "one.md").write_text(one)
    (tmp_path / "two.md").write_text("# Two\n\n```sh\n# Lease expired\n```\n\n### Expired lease\n\nNothing.\n")
    pages = {name: tmp_path / f"{name}.md" for name in ("one", "two")}
    assert handbook.search(["lease", "EXPIRED"], pages) == [
        ("two", 7, "Expired lease", "Expired lease"),
        ("one", 9, "Two", "- Expired Leases."),
        ("two", 4, "Two", "# Lease expired"),
        ("one", 3, "One", "A lease of"),
    ]
    assert handbook.search(["two", "nothing"], pages) == []


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--search", "zzz queue"], 3, "no page has 'zzz' and 'queue'"),
        (["redis", "--search", "Celery"], 3, "no page has 'Celery'"),
        (["zzzz", "--search", "queue"], 3, "no topic named 'zzzz'"),
        (["--search", " "], 2, "--search needs a word"),
        (["deployment", "--files", "there", "--search", "unit"], 2, "--files writes files, and --search prints"),
    ],
)
def test_search_that_finds_nothing_ends_with_a_line(cli, arguments, code, line):
    ended = cli("docs", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.line.startswith(line)
    assert not Path("there").exists()


@pytest.mark.parametrize("topic", TOPICS)
def test_prints_plain_markdown_without_a_terminal(cli, topic):
    text = files("delayq").joinpath("docs", f"{topic}.md").read_text("utf-8")
    assert cli("docs", topic).out == text
    assert cli("docs", topic, "--json").json["text"] == text


@pytest.mark.parametrize(
    ("command", "page"),
    [("notify", "alerts"), ("top", "command-line"), ("acl", "security"), ("import", "command-line")],
)
def test_names_the_page_about_a_command(cli, command, page):
    ended = cli("docs", command)
    text = f"no topic named '{command}': read about this command with delayq docs {page}, or delayq {command} --help"
    assert (ended.code, ended.out, ended.line) == (3, "", text)


@pytest.mark.long
def test_renders_a_page_on_a_terminal(cli):
    out = cli("docs", "guarantees", env={"FORCE_COLOR": "1", "COLUMNS": "60", "TERM": "xterm-256color"}).out
    assert "\x1b[" in out
    assert "# Guarantees" not in out
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in out.splitlines()) <= 60


@pytest.mark.long
@pytest.mark.parametrize(
    ("piped", "lines", "paged"), [("", 24, True), ("stdout", 24, False), ("stdin", 24, False), ("", 9999, False)]
)
def test_long_page_is_shown_in_the_pager_of_the_user_on_a_terminal_only(tmp_path, piped, lines, paged):
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/shown\n")
    pager.chmod(0o755)
    env = os.environ | {"PAGER": str(pager), "TERM": "xterm", "COLUMNS": "80", "LINES": str(lines)}
    command = [sys.executable, "-m", "delayq", "docs", "guarantees"]
    out = tmp_path / "out"
    with terminal() as (screen, end), out.open("wb") as file:
        stdin, stdout = (subprocess.DEVNULL if piped == "stdin" else end), (file if piped == "stdout" else end)
        with Process(command, env=env, stdin=stdin, stdout=stdout) as process:
            while process.poll() is None:
                if select([screen], [], [], 0.1)[0]:
                    os.read(screen, 65_536)  # a full buffer would stop the program
        assert process.returncode == 0
    assert (tmp_path / "shown").exists() == paged
    if paged:
        assert "At least once" in (tmp_path / "shown").read_text()


def test_unknown_topic_is_not_found(cli):
    ended = cli("docs", "garantees")
    assert (ended.code, ended.out, ended.line) == (3, "", "no topic named 'garantees', did you mean 'guarantees'?")
    assert set(TOPICS) <= set(cli("docs", "zzz").line.replace(",", "").split())


def test_writes_the_files_of_a_page_into_a_folder(cli):
    written = [Path(line) for line in cli("docs", "deployment", "--files", "there").out.splitlines()]
    source = Path(str(files("delayq"))) / "docs" / "deployment"
    ours = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.*") if path.suffix != ".pyc"}
    ours[Path("docker/Dockerfile")] = (source / "docker/Dockerfile").read_bytes()
    assert {path.relative_to("there"): path.read_bytes() for path in written} == ours
    assert len(ours) > 15
    Path("there/docker/Dockerfile").unlink()
    again = cli("docs", "deployment", "--files", "there")  # as a file of that folder may be the user's own by now
    assert (again.code, again.out) == (1, "")
    assert again.line.endswith("exists already: name an empty folder")
    assert not Path("there/docker/Dockerfile").exists()
    found = cli("docs", "deployment", "--files", "other", "--json").json
    assert (found["topic"], len(found["files"])) == ("deployment", len(ours))


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--files", "there"], 2, "--files needs a TOPIC, such as deployment"),
        (["tasks", "--files", "there"], 2, "the page 'tasks' has no files; these have: deployment"),
        (["deployment", "--files", "file/there"], 1, "cannot write file/there"),
    ],
)
def test_files_that_cannot_be_written(cli, arguments, code, line):
    Path("file").touch()
    ended = cli("docs", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.line.startswith(line)
    assert not Path("there").exists()
