"""The fast tests bite: of all scripts with one mistake, all but those on a list of survivors are found out."""

from __future__ import annotations

import tomllib
from collections import Counter
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.mutation.mutants import FILES, Mutant, mutants_of, source
from tests.mutation.trial import Court

SURVIVORS = Path(__file__).with_name("survivors.toml")
PARTS = 40
"""One of these parts of all mutants is tried at every run, always the same."""


@cache
def survivors() -> dict[str, str]:
    """Return the names of the mutants that are known to survive, with the reason."""
    groups = tomllib.loads(SURVIVORS.read_text())["group"]
    return {name: group["why"] for group in groups for name in group["mutants"]}


def is_drawn(mutant: Mutant) -> bool:
    """Tell whether a mutant is in the sample; a survivor in a fragment, which all tests must bear, takes too long."""
    if mutant.file.startswith("lib/") and mutant.name in survivors():
        return False
    return int.from_bytes(blake2b(mutant.name.encode(), digest_size=4).digest()) % PARTS == 0


def original(file: str) -> Mutant:
    """Return what must survive, for the killing of the others to say something."""
    return Mutant(f"{file} as it is", file, "none", source(file))


def mistaken(mutants: list[Mutant], *, steps: int) -> dict[str, str]:
    """Return what is wrong with the list of survivors, by the names of mutants."""
    listed, found = survivors() | {original(mutant.file).name: "it is right" for mutant in mutants}, {}
    with Court(steps=steps) as court:
        for mutant, killer in court.try_all(mutants):
            if killer is None and mutant.name not in listed:
                found[mutant.name] = "survives, and is not listed"
            elif killer and mutant.name in listed:
                found[mutant.name] = f"should survive, and is killed by {killer}"
    return found


def test_at_least_95_of_100_mutants_are_killed():
    names = [mutant.name for file in FILES for mutant in mutants_of(file)]
    assert len(names) > 3000
    assert len(survivors()) <= 0.05 * len(names)


def test_every_survivor_is_a_mutant_and_has_a_reason():
    listed = survivors()
    assert listed.keys() <= {mutant.name for file in FILES for mutant in mutants_of(file)}
    assert all(len(why) > 20 for why in listed.values())


def test_every_kind_of_mistake_is_made_and_some_in_every_script():
    kinds = Counter(mutant.kind for file in FILES for mutant in mutants_of(file))
    assert kinds.keys() == {"drop", "fence", "flip", "near", "number", "swap"}
    assert min(kinds.values()) >= 100
    assert all(mutants_of(file) for file in FILES)


@pytest.mark.timeout(300)
def test_a_sample_of_the_mutants_is_killed_but_for_those_listed():
    drawn = [mutant for file in FILES for mutant in mutants_of(file) if is_drawn(mutant)]
    assert len(drawn) > 50
    assert mistaken([original("extend.lua"), *drawn], steps=500) == {}


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", FILES)
def test_every_mutant_is_killed_but_for_those_listed(file):
    assert mistaken([original(file), *mutants_of(file)], steps=6000) == {}
