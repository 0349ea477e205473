"""Every failure that is to be provoked, and the tests that do it: none may go, and none be left out of the table."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

PROVOKED = {
    "send": {
        "producer killed at every command": """
            crash/test_client.py::test_of_a_process_that_is_gone_there_stays_what_its_commands_had_done
            crash/test_client.py::test_a_process_is_killed_at_a_command
            crash/test_client.py::test_a_process_is_killed_at_every_command
        """,
        "reply dropped 1 to 10 times: one message": """
            failures/test_sending.py::test_a_send_whose_reply_is_lost_again_and_again_is_one_message
            unit/test_executor_lost_replies.py::test_a_message_whose_answer_is_lost_is_stored_once_and_called_new
        """,
        "Redis down for longer than the deadline: raises at it, not sent or unknown": """
            failures/test_sending.py::test_a_redis_that_is_down_for_longer_than_the_deadline_is_told_at_the_deadline
            failures/test_sending.py::test_a_redis_that_falls_silent_makes_the_outcome_unknown_and_the_ids_are_told
            unit/test_executor_deadline.py::test_what_was_never_sent_is_said_not_to_have_been_carried_out
            unit/test_executor_deadline.py::test_what_was_sent_without_an_answer_is_said_to_be_unknown
        """,
        "delay inf, nan, negative, 10^18, bool; naive datetimes: typed error, nothing stored": """
            failures/test_sending.py::test_a_delay_that_is_none_is_refused_and_nothing_stored
            failures/test_sending.py::test_a_time_that_is_naive_or_none_is_refused_and_nothing_stored
            unit/test_bad_input.py::test_a_wrong_argument_stores_nothing
        """,
        "payload over the limit: refused before a byte is sent": """
            failures/test_sending.py::test_a_payload_over_the_limit_is_refused_before_a_byte_is_sent
            unit/test_bad_input.py::test_a_payload_over_max_payload_is_refused_before_a_byte_is_sent
        """,
        "Redis full: QueueFullError, nothing half stored, resumes by itself": """
            failures/test_sending.py::test_a_full_redis_refuses_whole_and_takes_sends_again_by_itself_when_there_is_room
            lua/test_full.py::test_what_keeps_something_new_is_refused_as_a_whole
        """,
        "disk full: typed error, nothing half stored, resumes by itself": """
            failures/test_sending.py::test_a_full_disk_refuses_whole_and_all_goes_on_by_itself_when_there_is_room
        """,
        "1 M messages due in one millisecond: bounded scripts, others are served": """
            failures/test_backlog.py::test_ten_thousand_due_at_once_are_served_in_small_bites
            failures/test_backlog.py::test_a_million_due_at_once_are_served_in_small_bites
            lua/test_thousand.py::test_a_thousand_ids_in_one_call
        """,
    },
    "cancel": {
        "against promotion: exact answers, and what was cancelled never runs": """
            failures/test_cancelling.py::test_two_thousand_cancels_are_answered_exactly
            failures/test_cancelling.py::test_a_hundred_thousand_cancels_are_answered_exactly
            behaviour/test_scenarios.py::test_what_is_cancelled_is_never_delivered_wherever_it_waited
        """,
    },
    "lease": {
        "SIGSTOP past the lease, another takes it, SIGCONT: nack and extend answer 0": """
            failures/test_leases.py::test_who_was_frozen_while_another_took_over_can_neither_extend_nor_nack_nor_release
        """,
        "its ack is accepted only if nobody completed before": """
            failures/test_leases.py::test_the_late_ack_of_who_was_frozen_counts_if_nobody_has_completed_before
            failures/test_leases.py::test_the_late_ack_of_who_was_frozen_is_refused_if_another_has_completed
            behaviour/test_faults.py::test_a_worker_frozen_beyond_its_lease_cannot_settle_what_another_has_done
        """,
        "callback longer than the lease, with heartbeat: one delivery": """
            behaviour/test_leases.py::test_a_callback_of_three_leases_is_one_delivery
        """,
        "100 prefetched, slow callback, lease 1 s: 0 duplicates": """
            failures/test_leases.py::test_a_hundred_prefetched_messages_of_slow_work_are_each_delivered_once
            behaviour/test_scenarios.py::test_four_hundred_messages_of_slow_work_behind_a_short_lease_are_each_done_once
        """,
        "reply of ack or claim dropped: no lost slot, no charged attempt, no second delivery": """
            failures/test_leases.py::test_lost_replies_to_claims_and_acks_cost_no_slot_no_attempt_and_no_second_delivery
            unit/test_executor_lost_replies.py::test_a_claim_whose_answer_is_lost_orphans_nothing
            unit/test_executor_lost_replies.py::test_an_ack_whose_answer_is_lost_is_true_nevertheless
        """,
        "1,000 raising callbacks: throughput unchanged": """
            behaviour/test_leases.py::test_a_thousand_raising_callbacks_do_not_harm_the_worker
        """,
        "saturated with new messages: a retry is delivered within two ticks": """
            failures/test_leases.py::test_among_nothing_but_new_messages_a_retry_is_delivered_within_two_ticks
            lua/test_claims.py::test_while_both_lists_hold_ids_a_quarter_of_what_is_claimed_are_retries
        """,
    },
    "worker": {
        "SIGKILL: redelivered within lease + 1 s": """
            failures/test_workers.py::test_what_a_killed_worker_held_is_delivered_again_within_its_lease_and_a_second
        """,
        "SIGTERM, SIGINT: drained, rest released uncharged, exit 0": """
            failures/test_workers.py::test_an_interrupted_worker_drains_and_releases_the_rest_uncharged
            cli/test_worker.py::test_a_signal_drains
        """,
        "a second signal is faster": """
            failures/test_workers.py::test_a_second_signal_is_faster
            cli/test_worker.py::test_a_second_signal_cuts_off
        """,
        "callback raises SystemExit, KeyboardInterrupt, MemoryError, RecursionError, CancelledError": """
        failures/test_workers.py::test_a_callback_that_raises_what_ends_programs_costs_one_attempt_each_and_the_worker_lives
            behaviour/test_outcomes.py::test_whatever_a_callback_raises_costs_its_message_one_retry_and_nothing_else
            behaviour/test_outcomes.py::test_endless_recursion_is_one_failure
        """,
        "hangs: lease not extended beyond max_consume_duration": """
            behaviour/test_leases.py::test_a_hanging_callback_loses_its_message_after_max_consume_duration
        """,
        "kills its process n times: dead letter": """
            behaviour/test_faults.py::test_a_message_that_kills_its_workers_lies_in_the_dead_letter_in_the_end
        """,
        "fork after connect": """
            behaviour/test_faults.py::test_a_queue_works_on_both_sides_of_a_fork
            behaviour/test_faults.py::test_a_child_of_a_consuming_process_consumes_for_itself
            unit/test_executor_slots.py::test_a_fork_gets_a_name_of_its_own_and_does_not_go_on_with_its_parents_slots
        """,
        "stop before start, twice, from inside a callback; two starts": """
            failures/test_workers.py::test_a_callback_that_stops_and_starts_its_own_queue_twice_hangs_nothing
            behaviour/test_consuming.py::test_a_stop_where_nothing_runs_is_harmless
            behaviour/test_consuming.py::test_a_stop_inside_a_callback_does_not_wait_for_it
            behaviour/test_consuming.py::test_starting_twice_starts_once
            behaviour/test_consuming.py::test_starting_from_many_threads_starts_once
        """,
    },
    "server": {
        "SIGKILL, for each AOF policy": """
            failures/test_server.py::test_a_killed_server_loses_no_send_that_returned
            behaviour/test_faults.py::test_nothing_is_lost_when_the_server_is_killed_and_comes_back
        """,
        "power loss: AOF cut at the last synced byte": """
            torture/test_shim.py::test_a_power_cut_takes_what_had_not_reached_the_disk_and_no_more
            torture/test_shim.py::test_a_power_cut_takes_nothing_that_was_answered_where_every_write_is_synced
        """,
        "power loss: AOF cut at every byte of a script's effects, all or nothing": """
            crash/test_aof.py::test_a_script_is_kept_whole_or_not_at_all
            crash/test_aof.py::test_the_same_at_every_byte
        """,
        "disk full": """
            failures/test_sending.py::test_a_full_disk_refuses_whole_and_all_goes_on_by_itself_when_there_is_room
            torture/test_shim.py::test_a_full_disk_is_refused_and_accepted_again_when_it_has_room
        """,
        "FLUSHALL or a deleted key while running": """
            failures/test_server.py::test_a_worker_outlives_a_flush_and_what_is_sent_after_it_is_delivered
            failures/test_server.py::test_a_worker_outlives_a_deleted_key_and_repair_brings_back_what_it_held
            failures/test_repair.py::test_a_deleted_key_costs_no_message_that_has_its_payload
        """,
        "SCRIPT FLUSH, NOSCRIPT, also in pipelines": """
            failures/test_server.py::test_scripts_that_are_forgotten_all_the_time_are_loaded_again_in_pipelines_too
            unit/test_executor_errors.py::test_forgotten_scripts_in_the_middle_of_a_round_trip_are_taught_again
        """,
        "BUSY": """
        failures/test_server.py::test_a_server_that_is_busy_with_an_endless_script_is_waited_for_until_that_is_killed
            unit/test_executor_errors.py::test_a_server_busy_with_a_script_is_waited_for
        """,
        "LOADING": """
            failures/test_server.py::test_a_server_that_is_loading_is_waited_for
        """,
        "WRONGTYPE in each key: refused before the first write": """
            lua/test_wrong_types.py::test_a_key_of_another_type_is_refused_before_the_first_write
            lua/test_wrong_types.py::test_replies_of_another_type_are_refused_before_the_first_write
            behaviour/test_faults.py::test_a_key_of_another_type_is_reported_and_the_consumer_goes_on_when_it_is_mended
        """,
        "maxmemory full: drains to 0, then accepts": """
            failures/test_server.py::test_a_full_redis_drains_to_nothing_and_then_accepts
            lua/test_full.py::test_everything_else_runs_through
        """,
    },
    "time": {
        "client clock a day off: no effect": """
            failures/test_time.py::test_a_process_whose_clock_is_a_day_off_sends_and_consumes_as_any_other
            behaviour/test_days.py::test_a_wrong_clock_of_a_client_makes_no_difference
        """,
        "server clock an hour off: bounded": """
        failures/test_time.py::test_a_server_clock_set_forward_makes_due_what_it_says_and_doubles_what_was_held_at_most
            failures/test_time.py::test_a_server_clock_set_back_delays_no_more_than_that_and_tokens_rise
            failures/test_time.py::test_steps_of_the_server_clock_lose_nothing_and_double_what_was_in_flight_at_most
        """,
        "local waits are monotonic": """
            failures/test_time.py::test_local_waits_are_monotonic
        """,
    },
    "client": {
        "RESP2 and RESP3": """
            failures/test_client.py::test_both_protocols_do_all_a_queue_can_do
            unit/test_executor_clients.py::test_a_client_may_speak_either_protocol
        """,
        "hiredis and without": """
            failures/test_client.py::test_all_works_without_hiredis_too
        """,
        "black-holed connection: recovers within its time-out + 1 s": """
        failures/test_client.py::test_a_worker_whose_connections_are_swallowed_recovers_within_its_time_out_and_a_second
            unit/test_executor_lost_replies.py::test_a_black_holed_connection_is_left_within_its_timeout_and_a_second
        """,
        "connection pool shared with the application": """
            failures/test_client.py::test_a_pool_is_shared_with_the_application
            failures/test_client.py::test_a_pool_that_is_used_up_by_the_application_is_waited_for
        """,
    },
    "names and data": {
        "hostile queue names and ids: refused or kept apart": """
            failures/test_names.py::test_a_hostile_name_makes_no_queue_and_a_hostile_id_no_message
            failures/test_names.py::test_queues_whose_names_look_alike_are_kept_apart
            failures/test_names.py::test_ids_that_look_alike_are_kept_apart
            unit/test_keys.py::test_two_queues_share_a_key_only_if_they_are_the_same
            unit/test_keys.py::test_a_hostile_id_is_refused
        """,
        "any bytes round-trip": """
            failures/test_names.py::test_any_bytes_come_back_as_they_were
            unit/test_codec.py::test_any_bytes_come_back_as_they_were
        """,
        "undecodable payload or JSON bomb: dead letter, worker lives": """
            failures/test_names.py::test_a_payload_that_does_not_decode_is_dead_and_the_worker_lives
            behaviour/test_payloads.py::test_what_cannot_be_decoded_goes_to_the_dead_letter_and_the_worker_lives
        """,
    },
    "repair": {
        "ids in the wrong places": """
            failures/test_repair.py::test_an_id_in_pending_and_unack_is_not_delivered_twice
            failures/test_repair.py::test_an_entry_of_ready_without_a_record_is_a_message_again
            failures/test_repair.py::test_a_record_that_names_another_place_is_believed_only_if_it_is_there
            failures/test_repair.py::test_whatever_is_planted_is_mended_and_every_payload_delivered
            lua/test_cases.py::test_a_call_does_what_its_table_says
        """,
        "payload without place": """
            failures/test_repair.py::test_a_payload_without_a_place_is_delivered_now
        failures/test_repair.py::test_a_message_that_was_taken_out_of_its_lease_comes_back_and_a_late_ack_still_counts
            failures/test_repair.py::test_the_log_tells_what_was_given_a_new_time
        """,
        "place without payload": """
            failures/test_repair.py::test_a_place_without_payload_is_cleared_and_told
            failures/test_repair.py::test_remains_of_no_message_are_deleted
            failures/test_repair.py::test_a_delivery_of_no_message_is_deleted_by_a_light_look
            failures/test_repair.py::test_a_message_without_retries_gets_the_default
        """,
        "counters, wake-ups, the dead letter and unknown fields": """
            failures/test_repair.py::test_counters_are_counted_anew
            failures/test_repair.py::test_of_several_wake_ups_one_is_left
            failures/test_repair.py::test_a_death_of_which_a_part_is_gone_is_put_in_step
            failures/test_repair.py::test_an_unknown_field_is_told_and_kept
        """,
        "what is healthy is left alone, also beside producers and consumers": """
            failures/test_repair.py::test_a_healthy_queue_is_left_as_it_is
            failures/test_repair.py::test_looking_makes_no_queue_known
            failures/test_repair.py::test_what_is_no_truth_is_refused
            failures/test_repair.py::test_repairing_beside_producers_and_consumers_loses_and_doubles_nothing
            failures/test_repair.py::test_repairing_beside_producers_and_consumers_for_long
        """,
        "delayq doctor heals and reports": """
            cli/test_doctor.py::test_tells_what_is_wrong_and_changes_nothing
            cli/test_doctor.py::test_repairs
            cluster/test_repair.py::test_what_has_lost_its_place_is_delivered
            cli/test_doctor.py::test_a_light_look_says_when_a_deep_one_is_needed
        """,
    },
}
"""By chapter of the list of failures: each failure with what is right, and the tests that show it.

Failures of Sentinel and Cluster have a folder of their own, `tests/cluster`.
"""

CLAUSES = [
    pytest.param(named.split(), id=f"{chapter}: {clause}")
    for chapter, clauses in PROVOKED.items()
    for clause, named in clauses.items()
]


@cache
def functions_of(file: str) -> dict[str, list[str]]:
    """Return the tests of a file, each with its decorators."""
    tree = ast.parse((TESTS / file).read_text())
    return {
        node.name: [ast.unparse(decorator) for decorator in node.decorator_list]
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("named", CLAUSES)
def test_a_failure_is_provoked_by_tests_that_exist_and_one_of_them_is_run_every_time(named):
    always = []
    for test in named:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test
        if not any("torture" in decorator for decorator in functions_of(file)[name]):
            always.append(name)
    assert always


def test_no_test_of_failures_is_left_out():
    here = {
        f"failures/{file.name}::{name}"
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for name in functions_of(f"failures/{file.name}")
    }
    assert here <= {test for clauses in PROVOKED.values() for named in clauses.values() for test in named.split()}
