"""`delayq docs`: renders the handbook on a terminal, prints plain Markdown elsewhere."""

import re
from importlib.resources import files

import pytest

TOPICS = sorted(page.name.removesuffix(".md") for page in files("delayq").joinpath("docs").iterdir())


def test_lists_the_topics(cli):
    ended = cli("docs")
    assert [line.split()[0] for line in ended.out.splitlines()] == TOPICS
    assert ended.err == "read a page with: delayq docs TOPIC\n"
    found = cli("docs", "--json").json["topics"]
    assert [page["topic"] for page in found] == TOPICS
    assert all(page["title"] for page in found)


@pytest.mark.parametrize("topic", TOPICS)
def test_prints_plain_markdown_without_a_terminal(cli, topic):
    text = files("delayq").joinpath("docs", f"{topic}.md").read_text("utf-8")
    assert cli("docs", topic).out == text
    assert cli("docs", topic, "--json").json["text"] == text


def test_renders_a_page_on_a_terminal(cli):
    out = cli("docs", "guarantees", env={"FORCE_COLOR": "1", "COLUMNS": "60", "TERM": "xterm-256color"}).out
    assert "\x1b[" in out
    assert "# Guarantees" not in out
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in out.splitlines()) <= 60


def test_unknown_topic_is_not_found(cli):
    ended = cli("docs", "garantees")
    assert (ended.code, ended.out, ended.line) == (3, "", "no topic named 'garantees', did you mean 'guarantees'?")
    assert ", ".join(TOPICS) in cli("docs", "zzz").line
