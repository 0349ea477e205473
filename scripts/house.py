"""Print how large the package is, and how its rooms hang together: the figures that a change should not make worse.

    scripts/house.py

A room is a folder of modules. An arrow is an import of one room by another of the same package; what stands beside the
rooms of a package counts as a room. A file spells the options of a send if it names ten of them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "delayq"
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if "docs" not in path.relative_to(PACKAGE).parts]
OPTIONS = (
    *("headers", "name", "expires", "missed", "priority", "unique", "unique_for", "unique_after"),
    *("retention", "timeout", "jitter", "replace", "debounce", "collect", "retries"),
)
SPELLED = 10


def room_of(path: Path) -> str:
    """Return the folder of a module, by its dotted name within the package."""
    return ".".join(path.parent.relative_to(PACKAGE).parts)


def imported(path: Path) -> set[str]:
    """Return the rooms of the modules that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delayq."):
            home = PACKAGE.joinpath(*str(node.module).split(".")[1:])
            names = [home / f"{alias.name}.py" for alias in node.names]
            found |= {room_of(one) for one in (home.with_suffix(".py"), *names) if one.exists()}
    return found


def arrows() -> Counter[str]:
    """Return the number of arrows between the rooms of each package."""
    pairs = {(room_of(path), room) for path in MODULES for room in imported(path)}
    inside = (one.split(".")[0] for one, other in pairs if one != other and one.split(".")[0] == other.split(".")[0])
    return Counter(inside)


def spellers() -> int:
    """Return how many files spell the options of a send."""
    texts = (path.read_text("utf-8") for path in MODULES)
    return sum(sum(bool(re.search(rf"\b{name}\b", text)) for name in OPTIONS) >= SPELLED for text in texts)


def private_uses() -> int:
    """Return how often a module uses a private name of another."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "SLF001",
        "--ignore-noqa",
        "--output-format",
        "concise",
    ]
    done = subprocess.run([*command, str(PACKAGE)], check=False, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.count("SLF001")


def main() -> None:
    """Print the figures."""
    sizes = Counter(room_of(path) for path in MODULES if path.stem != "__init__")
    scripts = Counter(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.lua"))
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in MODULES)
    print(f"modules                       {len(MODULES)}")
    print(f"lines of Python               {lines:,}")
    print("largest rooms                 " + ", ".join(f"{room} {size}" for room, size in sizes.most_common(5)))
    print("largest folders of scripts    " + ", ".join(f"{room} {size}" for room, size in scripts.most_common(3)))
    print("arrows between rooms          " + ", ".join(f"{room} {size}" for room, size in arrows().most_common(6)))
    print(f"files that spell the options  {spellers()}")
    print(f"private names used elsewhere  {private_uses()}")


if __name__ == "__main__":
    main()
