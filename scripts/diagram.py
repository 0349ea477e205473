"""Draw the pictures of the documentation from the code, and put them where they are shown.

The chart of states: a column a state, a row a move, from every state with a dot to the one its arrow points at. The
paths: the moves that most messages make. The house: the folders of the package, what each is for, and what it imports.

    scripts/diagram.py            rewrite the pictures between their marks
    scripts/diagram.py --check    only compare; exit 1 if one is outdated
    scripts/diagram.py --print    print them
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from delayq.values.states import TRANSITIONS, State

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "delayq"
PITCH = 6
COLUMNS = (*State, None)
CENTRES = [PITCH // 2 + PITCH * column for column in range(len(COLUMNS))]
PATHS = (
    (None, State.PENDING, State.READY, State.ACTIVE, None),
    (State.ACTIVE, State.BACKOFF, State.RETRY, State.ACTIVE),
    (State.ACTIVE, State.RETRY),
    (State.ACTIVE, State.GARBAGE, State.DEAD, State.PENDING),
)
"""The moves that a newcomer needs to know; the chart has all."""


def paths() -> str:
    """Return the common paths of a message, a line each, with the cause of every move."""
    lines = []
    for path in PATHS:
        line = path[0].value if path[0] else "●"
        for source, target in pairwise(path):
            line += f" ──{_cause(source, target)}──> {target.value if target else '(gone)'}"
        lines.append(line)
    return "\n".join(lines)


def _cause(source: State | None, target: State | None) -> str:
    return next(move.cause for move in TRANSITIONS if (move.source, move.target) == (source, target))


def house() -> str:
    """Return the folders of the package from the top down, with what each is for and which others it imports."""
    imports = {folder: _imports(folder) for folder in _folders()}
    levels: dict[str, int] = {}

    def level(folder: str) -> int:
        if folder not in levels:
            levels[folder] = 1 + max((level(below) for below in imports[folder]), default=0)
        return levels[folder]

    width = max(map(len, imports))
    lines = []
    for folder in sorted(imports, key=lambda one: (-level(one), one)):
        below = sorted(imports[folder], key=lambda one: (-level(one), one))
        lines.append(f"{level(folder):2}  {folder:{width}}  {_purpose(folder)}")
        if below:
            lines.append(f"    {'':{width}}  imports {' '.join(below)}")
    return "\n".join(lines)


def _folders() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def _purpose(folder: str) -> str:
    docstring = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    return docstring.partition("\n")[0]


def _imports(folder: str) -> set[str]:
    """Return the other folders that a folder imports when the program runs; root modules are left out."""
    found: set[str] = set()
    for path in (PACKAGE / folder).rglob("*.py"):
        tree = ast.parse(path.read_text())
        typing_only = {
            node
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node not in typing_only and node.module:
                found.update(node.module.split(".")[1:2] if node.module.startswith("delayq.") else [])
    return found & set(_folders()) - {folder}


def states() -> str:
    """Return the chart of states: a line for each kind of move; it fits a terminal of 80 columns."""
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


PICTURES: tuple[tuple[str, Path, Callable[[], str]], ...] = (
    ("paths", ROOT / "README.md", paths),
    ("states", PACKAGE / "docs" / "life-of-a-message.md", states),
    ("house", PACKAGE / "docs" / "contributing.md", house),
)
"""Each picture's mark, the page that shows it, and what draws it."""


def _with_picture(text: str, mark: str, picture: str) -> str:
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no {begin} … {end}")
    return f"{before}{begin}\n```text\n{picture}\n```\n{end}{after}"


def outdated() -> Iterator[tuple[Path, str]]:
    """Yield the pages whose picture is not the one of the code, and what they should read."""
    for mark, page, draw in PICTURES:
        text = page.read_text()
        fresh = _with_picture(text, mark, draw())
        if text != fresh:
            yield page, fresh


def main() -> int:
    """Draw."""
    if sys.argv[1:] == ["--print"]:
        print("\n\n".join(draw() for _, _, draw in PICTURES))
        return 0
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = [*outdated()]
    for page, fresh in stale:
        print(page.relative_to(ROOT))
        if not sys.argv[1:]:
            page.write_text(fresh)
    return 1 if stale and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
