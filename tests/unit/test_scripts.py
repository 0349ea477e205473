"""The scripts as they are loaded from their files."""

import hashlib
from dataclasses import fields

import pytest

from delayq.broker.keys import Keys
from delayq.broker.scripts import names, read_all, script

NAMES = names()
READING = {"outcomes", "counts", "get", "page", "snapshot", "walk", "schedules_due", "schedules_page", "schedules_find"}
READING |= {"limits_page", "workers_page", "history", "forecast", "sample_names", "rekey_page", "kept_ids"}
REPEATABLE = {"keep_presence", "configure", "remove", "wake", "moved", "repartition"}
REPEATABLE |= {"file_spilled", "merge_files", "drop_changes"}


def test_there_are_scripts():
    assert {"pending_to_ready", "ready_to_unack", "unack_to_retry", "ack", "nack", "send"} <= set(NAMES)


@pytest.mark.table("name", NAMES)
def test_script_has_the_sha1_of_its_text(name):
    assert script(name).sha == hashlib.sha1(script(name).text).hexdigest().encode()


@pytest.mark.table("name", NAMES)
def test_script_declares_parts_of_a_queue(name):
    parts = script(name).parts
    assert parts
    assert set(parts) <= {part.name for part in fields(Keys)}
    assert len(set(parts)) == len(parts)


@pytest.mark.table("name", sorted(set(NAMES) - READING))
def test_writing_script_executes_once_unless_it_is_repeatable(name):
    assert script(name).executes_once is (name not in REPEATABLE)


@pytest.mark.parametrize("name", sorted(READING))
def test_reading_script_needs_no_slot(name):
    assert not script(name).executes_once


def test_script_file_is_read_once():
    assert script("ack") is script("ack")


def test_unknown_script_raises_an_error():
    with pytest.raises(FileNotFoundError):
        script("no_such_script")


def test_scripts_are_ascii():
    assert not [file for file, text in read_all("").items() if not text.isascii()]
