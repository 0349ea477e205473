"""The fast tests detect every script with one mistake, except for the listed survivors."""

from __future__ import annotations

import tomllib
from collections import Counter
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.lua.tables import SCRIPTS
from tests.mutation.checks import all_checks
from tests.mutation.mutants import FILES, Mutant, mutants_of, source
from tests.mutation.trial import MutantRunner

SURVIVORS = Path(__file__).with_name("survivors.toml")
PARTS = 200
"""The torture runs one of these parts of all mutants, always the same; the quick tests a fifth of that."""


@cache
def survivors() -> dict[str, str]:
    """Return the names of the mutants that are known to survive, with the reason."""
    groups = tomllib.loads(SURVIVORS.read_text())["group"]
    return {name: group["why"] for group in groups for name in group["mutants"]}


def is_drawn(mutant: Mutant, parts: int) -> bool:
    """Return whether a mutant is in a sample; survivors in fragments are not: they run all tests and take too long."""
    if mutant.file.startswith("lib/") and mutant.name in survivors():
        return False
    return int.from_bytes(blake2b(mutant.name.encode(), digest_size=4).digest()) % parts == 0


def original(file: str) -> Mutant:
    """Return the unchanged file as a mutant, which must survive."""
    return Mutant(f"{file} as it is", file, "none", source(file))


def wrong_survivors(mutants: list[Mutant], *, steps: int) -> dict[str, str]:
    """Return the errors in the list of survivors, by the names of mutants."""
    listed, found = survivors() | {original(mutant.file).name: "it is right" for mutant in mutants}, {}
    with MutantRunner(steps=steps) as runner:
        for mutant, killer in runner.run_all(mutants):
            if killer is None and mutant.name not in listed:
                found[mutant.name] = "survives, and is not listed"
            elif killer and mutant.name in listed:
                found[mutant.name] = f"should survive, and is killed by {killer}"
    return found


def test_at_least_95_of_100_mutants_are_killed():
    names = [mutant.name for file in FILES for mutant in mutants_of(file)]
    assert len(names) > 3000
    assert len(survivors()) <= 0.05 * len(names)


@pytest.mark.long
def test_every_survivor_is_a_mutant_and_has_a_reason():
    listed = survivors()
    assert listed.keys() <= {mutant.name for file in FILES for mutant in mutants_of(file)}
    assert all(len(why) > 20 for why in listed.values())


def test_mutants_cover_every_kind_of_mistake_and_every_script():
    kinds = Counter(mutant.kind for file in FILES for mutant in mutants_of(file))
    assert kinds.keys() == {"drop", "fence", "flip", "near", "number", "swap"}
    assert min(kinds.values()) >= 100
    assert all(mutants_of(file) for file in FILES)


def test_every_script_has_tests_that_its_mutants_run():
    """They are found by the names of the calls that they make."""
    checks = Counter(name for check in all_checks() for name in check.scripts)
    assert min(checks[name] for name in SCRIPTS) >= 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("parts", [5 * PARTS, pytest.param(PARTS, marks=pytest.mark.torture)])
def test_sample_of_the_mutants_is_killed_except_for_survivors(parts):
    drawn = [mutant for file in FILES for mutant in mutants_of(file) if is_drawn(mutant, parts)]
    assert len(drawn) > 2000 // parts
    assert wrong_survivors([original("extend.lua"), *drawn], steps=500) == {}


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", FILES)
def test_every_mutant_is_killed_except_for_survivors(file):
    assert wrong_survivors([original(file), *mutants_of(file)], steps=6000) == {}
