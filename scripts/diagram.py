"""Draw the life of a message from `delayq.states` and put the drawing where the documentation shows it.

Each column is a state, each row one move: from every state marked with a dot to the one its arrow points at. Without
an argument the drawing goes into the files, between their marks; with `--check` it is only compared, with `--print` it
is shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

from delayq.states import TRANSITIONS, State

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", ROOT / "delayq" / "docs" / "life-of-a-message.md")
BEGIN, END = "<!-- states:begin -->", "<!-- states:end -->"
PITCH = 6
COLUMNS = (*State, None)
CENTRES = [PITCH // 2 + PITCH * column for column in range(len(COLUMNS))]


def draw() -> str:
    """Return the drawing: the states, and a line for each kind of move; it fits a terminal of 80 columns."""
    lines = _heads()
    moves: dict[tuple[State | None, str], list[State | None]] = {}
    for move in TRANSITIONS:
        moves.setdefault((move.target, move.cause), []).append(move.source)
    for (target, cause), sources in moves.items():
        lines.append(f"{_row(sources, target)}  {cause}")
    return "\n".join(lines)


def _heads() -> list[str]:
    """Return the names of the columns, on two lines by turns, for they are longer than the columns are wide."""
    lines = ["", ""]
    for column, state in enumerate(COLUMNS):
        name = state.value if state else "(gone)"
        line = lines[column % 2]
        lines[column % 2] = line.ljust(max(0, CENTRES[column] - len(name) // 2)) + name
    return lines


def _row(sources: list[State | None], target: State | None) -> str:
    row = [" "] * (CENTRES[-1] + 1)
    for centre in CENTRES:
        row[centre] = "│"
    head = CENTRES[COLUMNS.index(target)]
    # What comes from nowhere, a send, begins at the left edge.
    tails = [0 if source is None else CENTRES[COLUMNS.index(source)] for source in sources]
    for at in range(min(*tails, head), max(*tails, head) + 1):
        row[at] = "─"
    row[head] = "│"
    if min(tails) < head:
        row[head - 1] = ">"
    if max(tails) > head:
        row[head + 1] = "<"
    for tail in tails:
        row[tail] = "●"
    return "".join(row)


def _with_drawing(text: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n```text\n{draw()}\n```\n{END}{after}"


def outdated() -> list[Path]:
    """Return the files whose drawing is not the one of `delayq.states`."""
    return [path for path in FILES if (text := path.read_text()) != _with_drawing(text)]


def main() -> int:
    """Draw."""
    if sys.argv[1:] == ["--print"]:
        print(draw())
        return 0
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = outdated()
    for path in stale:
        print(path.relative_to(ROOT))
        if not sys.argv[1:]:
            path.write_text(_with_drawing(path.read_text()))
    return 1 if stale and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
