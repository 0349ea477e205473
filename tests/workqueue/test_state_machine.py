"""Clients of both kinds and cleaners, in any order, lose and duplicate no item and leave no keys."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.workqueue.machine import Sharing


def walk(db, *, examples, steps):
    class Here(Sharing):
        pass

    Here.db = db
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_item_is_lost_duplicated_or_left(redis_client):
    walk(redis_client, examples=80, steps=40)


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_no_item_is_lost_duplicated_or_left_in_a_long_run(redis_client):
    walk(redis_client, examples=1000, steps=80)
