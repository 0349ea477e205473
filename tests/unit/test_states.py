"""The table of states and transitions, from which the diagram is generated."""

import pytest

from delayq.broker.scripts import names, script
from delayq.values.states import TRANSITIONS, State

READING = {"outcomes", "counts", "get", "page", "snapshot", "walk", "schedules_due", "schedules_page", "schedules_find"}
READING |= {"limits_page", "workers_page", "history", "forecast", "sample_names", "rekey_page", "kept_ids"}


@pytest.mark.table("transition", TRANSITIONS, ids=lambda one: f"{one.script}-{one.source}-{one.target}")
def test_every_transition_belongs_to_a_script(transition):
    assert transition.script in names()
    assert script(transition.script).executes_once
    assert transition.cause


def test_no_transition_is_listed_twice():
    assert len(set(TRANSITIONS)) == len(TRANSITIONS)


def test_every_script_that_moves_messages_is_in_the_table():
    elsewhere = {
        "extend",
        "purge",
        "remove",
        "wake",
        "keep_presence",
        "configure",
        "begin_run",
        "end_run",
        "keep_plan",
        "repair",
        "repair_dead",
        "recount",
        "rekey",
        "edit",
        "forget",
        "forget_events",
    }
    elsewhere |= {
        "schedule_put",
        "schedule_remove",
        "withdraw",
        "pause",
        "resume",
        "log_action",
        "report",
        "ack_some",
        "await_ends",
    }
    elsewhere |= {"limit", "declare", "close", "presence"}
    elsewhere |= {"move_out", "move_in", "deaths_out", "deaths_in", "schedules_out", "schedules_in"}
    elsewhere |= {"spill", "restore", "file_spilled", "merge_files", "drop_changes"}  # to files, and back as it was
    elsewhere |= {"moved", "repartition"}  # from one partition to another: a message stays as it is
    elsewhere |= {"send_one", "debounce", "collect"}  # they do what `send` does
    elsewhere |= {"join"}  # an ack and a send
    elsewhere |= {"pending_to_unack", "turn"}  # a promotion and a claim in turn, and an ack
    elsewhere |= {"stage", "commit_staged"}  # which move as `ready_to_unack` and `ack`, of which they are made
    assert {transition.script for transition in TRANSITIONS} == set(names()) - READING - elsewhere


def test_every_state_can_be_reached_and_left():
    def reachable(start, step):
        seen, todo = set(), [start]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += step(at)
        return seen

    forth = reachable(None, lambda at: [one.target for one in TRANSITIONS if one.source == at])
    back = reachable(None, lambda at: [one.source for one in TRANSITIONS if one.target == at])
    assert forth == {None, *State}
    assert back == {None, *State}


def test_only_a_claim_makes_a_message_active():
    assert {one.script for one in TRANSITIONS if one.target is State.ACTIVE} == {"ready_to_unack"}


def test_dead_messages_leave_only_by_redrive_purge_or_trimming():
    leaving = {(one.script, one.target) for one in TRANSITIONS if one.source is State.DEAD}
    assert leaving == {("redrive", State.PENDING), ("dead_purge", None), ("collect_garbage", None)}


def test_waiting_messages_can_be_cancelled_killed_rescheduled_replaced_or_acked_late():
    waiting = {State.PENDING, State.READY, State.RETRY, State.BACKOFF, State.THROTTLED}
    for name in ("cancel", "kill", "reschedule"):
        assert {one.source for one in TRANSITIONS if one.script == name} == waiting
    assert {one.source for one in TRANSITIONS if one.script == "send"} == {None, *waiting}
    assert {one.source for one in TRANSITIONS if one.script == "ack"} == {State.ACTIVE, *waiting}
