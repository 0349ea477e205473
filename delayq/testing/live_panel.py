"""A terminal with a panel that is redrawn below the output; elsewhere plain lines."""

from __future__ import annotations

from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

LABEL = "bright_black"
"""The style of labels."""


class LivePanel:
    """Base of the screens: prints lines and, on a terminal that can be drawn on, a live panel below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        can_draw = console.file.isatty() and not console.is_dumb_terminal and not console.quiet
        self._live = Live(self, console=console, auto_refresh=False, transient=True) if can_draw else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> RenderableType:
        return Text()


def labelled(*pairs: tuple[str, str]) -> Text:
    """Return labels and values in one line."""
    text = Text()
    for label, value in pairs:
        text.append("   " if text else "")
        text.append(f"{label} " if label else "", LABEL)
        text.append(value)
    return text
