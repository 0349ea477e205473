"""The scripts as they are loaded from their files."""

import hashlib
from dataclasses import fields
from importlib.resources import files

import pytest

from delayq.keys import Keys
from delayq.script import script

NAMES = sorted(path.name.removesuffix(".lua") for path in files("delayq").joinpath("lua").iterdir() if path.is_file())
READING = {"counts", "get", "page", "snapshot", "walk", "schedules_due", "schedules_page"}
REPEATABLE = {"configure", "wake"}


def test_there_are_scripts():
    assert {"pending_to_ready", "ready_to_unack", "unack_to_retry", "ack", "nack", "send"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_known_by_the_digest_of_its_text(name):
    assert script(name).sha == hashlib.sha1(script(name).text).hexdigest().encode()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_names_parts_of_a_queue(name):
    parts = script(name).parts
    assert parts
    assert set(parts) <= {part.name for part in fields(Keys)}
    assert len(set(parts)) == len(parts)


@pytest.mark.parametrize("name", sorted(set(NAMES) - READING))
def test_a_script_that_writes_executes_once_or_may_be_repeated(name):
    assert script(name).executes_once is (name not in REPEATABLE)


@pytest.mark.parametrize("name", sorted(READING))
def test_a_script_that_reads_needs_no_slot(name):
    assert not script(name).executes_once


def test_a_script_is_read_once():
    assert script("ack") is script("ack")


def test_an_unknown_script_is_an_error():
    with pytest.raises(FileNotFoundError):
        script("no_such_script")


def test_scripts_are_ascii_so_that_no_locale_can_garble_them():
    folder = files("delayq").joinpath("lua")
    for path in [*folder.iterdir(), *folder.joinpath("lib").iterdir()]:
        if path.is_file():
            assert path.read_bytes().isascii(), path.name
