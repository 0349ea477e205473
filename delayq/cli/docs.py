"""`delayq docs`: the handbook that comes with the package, in the terminal."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import click

from delayq.cli.failure import NotFound
from delayq.cli.options import json_option
from delayq.cli.output import Column, console, put_json, say, show, table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _pages() -> dict[str, Traversable]:
    folder = files("delayq").joinpath("docs")
    if not folder.is_dir():
        return {}
    return {
        page.name.removesuffix(".md"): page
        for page in sorted(folder.iterdir(), key=lambda page: page.name)
        if page.name.endswith(".md")
    }


def _title(text: str) -> str:
    first = next((line for line in text.splitlines() if line.startswith("# ")), "")
    return first.removeprefix("# ").strip()


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    from click.shell_completion import CompletionItem

    return [CompletionItem(topic) for topic in _pages() if topic.startswith(incomplete)]


@click.command()
@click.argument("topic", required=False, shell_complete=_complete)
@json_option
def docs(topic: str | None, *, as_json: bool) -> None:
    """Read the page TOPIC of the handbook; without TOPIC, list the pages.

    Drawn for a terminal, and as plain Markdown where the output goes elsewhere.
    JSON: {"topics": [{"topic", "title"}, …]}, or {"topic", "title", "text"}.
    """
    pages = _pages()
    if topic is None:
        titles = {name: _title(page.read_text("utf-8")) for name, page in pages.items()}
        if as_json:
            put_json({"topics": [{"topic": name, "title": title} for name, title in titles.items()]})
        else:
            show(table([Column("topic"), Column("")], list(titles.items()), titles=False))
            say("read one with: delayq docs TOPIC")
        return
    page = pages.get(topic.lower().removesuffix(".md"))
    if page is None:
        raise NotFound("topic", topic, list(pages))
    text = page.read_text("utf-8")
    printer = console()
    if as_json:
        put_json({"topic": topic, "title": _title(text), "text": text})
    elif printer.is_terminal:
        from rich.markdown import Markdown

        printer.print(Markdown(text), width=min(printer.width, 100))
    else:
        click.echo(text, nl=not text.endswith("\n"))
