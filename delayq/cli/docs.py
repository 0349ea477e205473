"""`delayq docs`: shows the pages of the handbook, which is part of the package."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import click

from delayq.cli.exit_codes import CommandError, Exit
from delayq.cli.options import json_option
from delayq.cli.output import console, print_details, print_json, print_note
from delayq.errors import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _pages() -> dict[str, Traversable]:
    pages = {page.name: page for page in files("delayq").joinpath("docs").iterdir()}
    return {name.removesuffix(".md"): pages[name] for name in sorted(pages) if name.endswith(".md")}


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
    """Show the page TOPIC of the handbook; without TOPIC, list the pages.

    Renders the page on a terminal, and prints plain Markdown elsewhere.

    JSON: {"topics": [{"topic", "title"}, …]}; with TOPIC {"topic", "title", "text"}.
    """
    pages = _pages()
    if topic is None:
        titles = {name: _title(page.read_text("utf-8")) for name, page in pages.items()}
        if as_json:
            print_json({"topics": [{"topic": name, "title": title} for name, title in titles.items()]})
        else:
            print_details(titles)
            print_note("read a page with: delayq docs TOPIC")
        return
    page = pages.get(topic.lower().removesuffix(".md"))
    if page is None:
        near = did_you_mean(topic, pages) or f"; the topics are {', '.join(pages)}"
        raise CommandError(f"no topic named {topic!r}{near}", Exit.NOT_FOUND)
    text = page.read_text("utf-8")
    printer = console()
    if as_json:
        print_json({"topic": topic, "title": _title(text), "text": text})
    elif printer.is_terminal:
        from rich.markdown import Markdown

        printer.print(Markdown(text), width=min(printer.width, 100))
    else:
        click.echo(text, nl=not text.endswith("\n"))
