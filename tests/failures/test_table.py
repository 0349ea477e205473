"""Every failure that must be tested, and its tests: none may be removed, and none may be missing in the table."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

PROVOKED = {
    "send": {
        "producer killed at every command": """
            crash/test_client.py::test_executed_commands_of_a_dead_process_stay
            crash/test_client.py::test_killed_process_leaves_whole_commands
            crash/test_client.py::test_process_killed_at_any_command_leaves_whole_commands
        """,
        "reply dropped 1 to 10 times: one message": """
            failures/test_sending.py::test_send_whose_reply_is_lost_repeatedly_is_one_message
            unit/test_executor_lost_replies.py::test_send_whose_reply_is_lost_stores_once_and_reports_new
        """,
        "Redis down for longer than the deadline: raises at it, not sent or unknown": """
            failures/test_sending.py::test_send_raises_at_the_deadline_if_redis_is_down
            failures/test_sending.py::test_silent_redis_raises_outcome_unknown_with_the_ids
            unit/test_executor_deadline.py::test_call_that_was_never_sent_raises_unavailable_error
            unit/test_executor_deadline.py::test_call_sent_without_a_reply_raises_outcome_unknown
        """,
        "delay inf, nan, negative, 10^18, bool; naive datetimes: typed error, nothing stored": """
            failures/test_sending.py::test_invalid_delay_is_refused_and_nothing_is_stored
            failures/test_sending.py::test_naive_or_invalid_time_is_refused_and_nothing_is_stored
            unit/test_bad_input.py::test_invalid_argument_stores_nothing
        """,
        "payload over the limit: refused before a byte is sent": """
            failures/test_sending.py::test_a_payload_over_the_limit_is_refused_before_a_byte_is_sent
            unit/test_bad_input.py::test_a_payload_over_max_payload_is_refused_before_a_byte_is_sent
        """,
        "Redis full: QueueFullError, nothing half stored, resumes by itself": """
            failures/test_sending.py::test_full_redis_refuses_sends_and_accepts_them_again_with_free_memory
            lua/test_full.py::test_calls_that_store_something_new_are_refused_completely
            failures/test_refusing_server.py::test_full_redis_forgets_and_refuses_an_edit
            failures/test_remedies.py::test_remedy_works_on_a_full_redis
            failures/test_remedies.py::test_position_that_a_full_redis_refuses_prevents_no_trimming
        """,
        "disk full: typed error, nothing half stored, resumes by itself": """
            failures/test_sending.py::test_full_disk_refuses_sends_and_work_continues_with_free_space
        """,
        "1 M messages due in one millisecond: bounded scripts, others are served": """
            failures/test_backlog.py::test_ten_thousand_messages_due_at_once_are_promoted_in_small_batches
            failures/test_backlog.py::test_a_million_messages_due_at_once_are_promoted_in_small_batches
            lua/test_thousand.py::test_call_handles_a_thousand_ids
        """,
    },
    "cancel": {
        "against promotion: exact answers, and what was cancelled never runs": """
            failures/test_cancelling.py::test_two_thousand_cancels_return_exact_outcomes
            failures/test_cancelling.py::test_a_hundred_thousand_cancels_return_exact_outcomes
            behaviour/test_scenarios.py::test_cancelled_message_is_never_delivered_from_any_waiting_state
            failures/test_editing.py::test_edited_message_is_delivered_as_it_was_edited
        """,
        "claimed and not started: taken back, also from a worker that does not answer": """
            failures/test_cancelling.py::test_message_that_was_claimed_and_not_started_is_cancelled_and_killed
            failures/test_cancelling.py::test_message_that_was_claimed_and_not_started_is_rescheduled_and_replaced
            failures/test_cancelling.py::test_message_that_was_claimed_and_not_started_is_edited
            failures/test_cancelling.py::test_message_of_a_worker_that_does_not_answer_counts_as_running
        """,
    },
    "lease": {
        "SIGSTOP past the lease, another takes it, SIGCONT: nack and extend answer 0": """
            failures/test_leases.py::test_frozen_worker_cannot_extend_nack_release_or_reject_after_redelivery
        """,
        "its ack is accepted only if nobody completed before": """
            failures/test_leases.py::test_late_ack_of_a_frozen_worker_counts_if_the_message_is_not_settled
            failures/test_leases.py::test_late_ack_of_a_frozen_worker_is_refused_if_another_has_settled
            behaviour/test_faults.py::test_worker_frozen_past_its_lease_cannot_settle_a_redelivered_message
        """,
        "callback longer than the lease, with heartbeat: one delivery": """
            behaviour/test_leases.py::test_callback_longer_than_three_leases_is_one_delivery
        """,
        "100 prefetched, slow callback, lease 1 s: 0 duplicates": """
            failures/test_leases.py::test_prefetched_messages_of_slow_work_are_delivered_once
            behaviour/test_scenarios.py::test_slow_work_with_a_short_lease_is_delivered_once
        """,
        "reply of ack or claim dropped: no lost slot, no charged attempt, no second delivery": """
            failures/test_leases.py::test_lost_replies_to_claims_and_acks_lose_no_capacity_and_no_attempt
            unit/test_executor_lost_replies.py::test_claim_whose_reply_is_lost_loses_no_message
            unit/test_executor_lost_replies.py::test_ack_whose_reply_is_lost_returns_true
        """,
        "1,000 raising callbacks: throughput unchanged": """
            behaviour/test_leases.py::test_worker_survives_a_thousand_failing_callbacks
        """,
        "saturated with new messages: a retry is delivered within two ticks": """
            failures/test_leases.py::test_retry_is_delivered_within_two_ticks_among_new_messages
            lua/test_claims.py::test_a_quarter_of_claimed_messages_are_retries
        """,
    },
    "worker": {
        "SIGKILL: redelivered within lease + 1 s": """
            failures/test_workers.py::test_messages_of_a_killed_worker_are_redelivered_when_leases_expire
        """,
        "SIGTERM, SIGINT: drained, rest released uncharged, exit 0": """
            failures/test_workers.py::test_interrupted_worker_finishes_and_releases_the_rest
            cli/test_worker.py::test_first_signal_lets_running_callbacks_finish
        """,
        "killed under a limit: no more than that starts, nothing is lost, and all places are free at the end": """
            failures/test_limits.py::test_killed_workers_let_no_more_run_than_may_and_give_their_places_back
            failures/test_limits.py::test_killed_workers_start_no_more_than_a_rate_allows
        """,
        "exit without a stop, cancellation, an error: what had not started is released": """
            failures/test_exits.py::test_what_has_not_ended_is_released_and_not_charged
            failures/test_exits.py::test_a_process_ends_although_redis_does_not_answer
            failures/test_exits.py::test_a_forked_child_that_exits_leaves_the_consumer_of_its_parent_alone
            failures/test_exits.py::test_claim_that_is_under_way_when_the_event_loop_ends_is_released
            failures/test_exits.py::test_consumer_that_fails_releases_what_it_has_claimed
            failures/test_exits.py::test_run_that_a_handler_ends_by_an_exception_stops_its_consumer
        """,
        "stopped while Redis does not answer: waits for running callbacks only": """
            failures/test_outages.py::test_idle_consumer_stops_at_once_although_redis_is_gone
            failures/test_outages.py::test_stop_waits_for_a_running_callback_but_not_for_redis
        """,
        "busy beside an idle one: takes no message that the other could start": """
            failures/test_idle_workers.py::test_two_idle_workers_take_one_of_two_slow_messages_each
            failures/test_idle_workers.py::test_what_was_prefetched_behind_a_slow_callback_is_processed_by_the_other_worker
        """,
        "killed with groups: each payload in exactly one batch": """
            failures/test_groups.py::test_payloads_of_killed_workers_are_each_in_one_batch
            failures/test_groups.py::test_payloads_outlive_a_killed_server
            failures/test_groups.py::test_each_payload_of_many_groups_is_in_one_batch_that_was_due
        """,
        "killed with keys in order: none overtakes, none runs twice at once, none is lost": """
            failures/test_order.py::test_messages_of_a_key_stay_in_order_while_workers_and_redis_are_killed
            behaviour/test_order_by_key.py::test_workers_keep_the_order_through_failures_and_snoozes
        """,
        "killed with a wake-up that it took: others notice, though they look in turn": """
            failures/test_idle_workers.py::test_a_wake_up_that_is_lost_delays_no_message_though_idle_workers_look_in_turn
            behaviour/test_worker.py::test_a_lost_wake_up_is_noticed_within_a_tick
        """,
        "an old and a new version side by side: nothing dies of a function that one does not know": """
            failures/test_deploys.py::test_old_worker_leaves_messages_of_a_new_function_to_the_new_worker
            behaviour/test_schedules.py::test_message_without_a_handler_waits_for_one_and_then_goes_to_the_dead_letter
        """,
        "occurrences of a schedule that come due while a callback of it runs: they do not overlap": """
            failures/test_overlap.py::test_slow_callbacks_of_two_workers_never_overlap
            behaviour/test_schedule_firing.py::test_occurrences_overlap_only_if_they_may
        """,
        "newer time zone data on some machines: schedules are planned anew, and once": """
            failures/test_deploys.py::test_worker_with_newer_time_zone_data_plans_the_schedules_anew
            unit/test_consumer_loop_schedules.py::test_it_plans_schedules_anew_with_newer_time_zone_data
        """,
        "a delivery that no message can succeed in: the worker stops, and nothing is charged": """
            behaviour/test_outcomes.py::test_stop_returns_the_message_and_ends_the_consumer_with_its_reason
            cli/test_deliver.py::test_refused_login_stops_all_workers_with_one_line_and_charges_nothing
            delivery/test_smtp.py::test_refusal_of_all_emails_stops_the_worker
        """,
        "a mail server takes some of several recipients: the others are left over alone, also if the worker dies": """
            delivery/test_recipients.py::test_deferred_and_refused_recipients_are_left_over_alone
            delivery/test_recipients.py::test_worker_that_died_before_the_acknowledgement_leaves_nobody_a_second_email
        """,
        "a payload names a host of this machine or its network: no connection, also if the name is rebound": """
            delivery/test_payload_urls.py::test_payload_that_names_a_private_host_is_rejected_and_nothing_is_sent
            delivery/test_payload_urls.py::test_name_that_is_rebound_reaches_no_private_address
        """,
        "a second signal is faster": """
            failures/test_workers.py::test_stop_in_a_signal_handler_ends_run_wherever_the_signal_comes
            failures/test_workers.py::test_second_signal_ends_the_worker_at_once
            cli/test_worker.py::test_second_signal_interrupts_callbacks
        """,
        "callback raises SystemExit, KeyboardInterrupt, MemoryError, RecursionError, CancelledError": """
        failures/test_workers.py::test_worker_survives_exceptions_that_normally_end_programs
            behaviour/test_outcomes.py::test_any_exception_uses_one_retry_and_does_not_harm_the_worker
            behaviour/test_outcomes.py::test_endless_recursion_is_one_failure
        """,
        "hangs: its attempt fails after max_consume_duration": """
            behaviour/test_leases.py::test_a_hanging_callback_fails_after_max_consume_duration
        """,
        "kills its process n times: dead letter, and no other message is charged": """
            behaviour/test_faults.py::test_message_that_kills_its_workers_goes_to_the_dead_letter
            failures/test_unstarted.py::test_message_that_kills_its_consumers_takes_no_other_with_it
            failures/test_unstarted.py::test_killed_consumer_buries_nothing_that_it_had_not_started
        """,
        "fork after connect": """
            behaviour/test_faults.py::test_a_queue_works_on_both_sides_of_a_fork
            behaviour/test_faults.py::test_forked_child_of_a_consuming_process_can_consume
            unit/test_executor_slots.py::test_forked_process_gets_its_own_name_and_slots
        """,
        "stop before start, twice, from inside a callback; two starts": """
            failures/test_workers.py::test_callback_that_stops_and_starts_its_own_queue_does_not_hang
            behaviour/test_consuming.py::test_stop_without_a_running_consumer_does_nothing
            behaviour/test_consuming.py::test_stop_inside_a_callback_does_not_wait_for_that_callback
            behaviour/test_consuming.py::test_second_start_does_not_start_a_second_consumer
            behaviour/test_consuming.py::test_concurrent_starts_start_one_consumer
        """,
    },
    "server": {
        "SIGKILL, for each AOF policy": """
            failures/test_server.py::test_killed_server_loses_no_send_that_returned
            behaviour/test_faults.py::test_no_message_is_lost_when_the_server_is_killed_and_restarted
        """,
        "power loss: AOF cut at the last synced byte": """
            torture/test_shim.py::test_power_cut_loses_only_unsynced_writes
            torture/test_shim.py::test_power_cut_loses_nothing_if_every_write_is_synced
        """,
        "power loss: AOF cut at every byte of a script's effects, all or nothing": """
            crash/test_aof.py::test_script_is_kept_completely_or_not_at_all
            crash/test_aof.py::test_script_is_kept_completely_or_not_at_all_at_every_byte
        """,
        "disk full": """
            failures/test_sending.py::test_full_disk_refuses_sends_and_work_continues_with_free_space
            torture/test_shim.py::test_server_refuses_writes_while_the_disk_is_full
        """,
        "FLUSHALL or a deleted key while running": """
            failures/test_server.py::test_worker_survives_a_flush_and_delivers_later_messages
            failures/test_lost_data.py::test_consumer_opens_its_queue_again_and_its_schedules_go_on
            failures/test_lost_data.py::test_producer_opens_its_queue_again
            failures/test_lost_data.py::test_what_others_have_declared_is_left_alone
            failures/test_server.py::test_worker_survives_a_deleted_key_and_repair_restores_its_messages
            failures/test_repair.py::test_deleted_key_loses_no_message_that_has_its_payload
        """,
        "SCRIPT FLUSH, NOSCRIPT, also in pipelines": """
            failures/test_server.py::test_constantly_flushed_scripts_are_loaded_again
            unit/test_executor_errors.py::test_scripts_missing_in_part_of_a_round_trip_are_loaded_again
        """,
        "refuses a running consumer for a while (password, user, rights, BUSY, clients, replica, protocol)": """
            failures/test_outages.py::test_running_consumer_survives_whatever_a_later_try_may_mend
            failures/test_outages.py::test_consumer_tells_whether_it_is_healthy
            failures/test_outages.py::test_hook_that_is_no_function_is_refused
            failures/test_outages.py::test_coroutine_function_as_a_hook_is_refused
            failures/test_outages.py::test_outage_is_logged_once_and_so_is_its_end_and_a_changed_reason
            failures/test_outages.py::test_provider_of_credentials_may_fail_for_a_while
            failures/test_outages.py::test_asyncio_consumer_that_ends_by_an_error_logs_it
        """,
        "refuses what no later try can mend: an error at once": """
            failures/test_outages.py::test_wrong_password_at_the_start_is_an_error_at_once
            unit/test_executor_deadline.py::test_what_no_later_try_can_mend_raises_at_once
        """,
        "keeps no scripts": """
            unit/test_executor_errors.py::test_script_that_is_not_kept_is_sent_as_text
        """,
        "BUSY": """
        failures/test_server.py::test_send_waits_while_an_endless_script_blocks_the_server
            unit/test_executor_errors.py::test_call_waits_while_the_server_is_busy_with_a_script
        """,
        "LOADING": """
            failures/test_server.py::test_send_waits_while_the_server_is_loading
        """,
        "WRONGTYPE in each key: refused before the first write": """
            lua/test_wrong_types.py::test_key_of_wrong_type_is_refused_before_the_first_write
            behaviour/test_faults.py::test_key_of_wrong_type_is_logged_and_the_consumer_continues_once_it_is_fixed
        """,
        "settlements refused: claiming rests": """
            failures/test_settling.py::test_nothing_is_claimed_while_settlements_are_refused
        """,
        "full, read-only, too few replicas, no more clients: doctor, health and metrics tell": """
            failures/test_refusing_server.py::test_refused_writes_are_told_by_whatever_looks_at_the_server
            failures/test_refusing_server.py::test_redis_that_is_nearly_full_is_told_and_health_goes_on
            failures/test_refusing_server.py::test_login_without_info_learns_what_is_not_known
        """,
        "reply beyond client-output-buffer-limit: claimed again for less, what is too large by itself is named": """
            failures/test_reply_limit.py::test_claim_whose_reply_is_too_large_is_made_again_for_less
            failures/test_reply_limit.py::test_payload_just_below_the_limit_is_sent_in_pieces
            failures/test_reply_limit.py::test_reply_that_cannot_be_sent_at_all_is_named
            failures/test_reply_limit.py::test_message_that_is_too_large_by_itself_is_named_and_blocks_no_other
            failures/test_reply_limit.py::test_entry_of_another_client_that_cannot_be_sent_blocks_no_other
        """,
        "workers of the version before beside new ones, under kills: nothing lost, doubled or early": """
            failures/test_mixed_versions.py::test_plain_messages
            failures/test_mixed_versions.py::test_queue_that_becomes_special_in_the_middle
            failures/test_mixed_versions.py::test_every_kind_of_message
            failures/test_mixed_versions.py::test_one_version_takes_over_from_the_other
            failures/test_mixed_versions.py::test_older_version_refuses_a_queue_with_what_it_does_not_know
            failures/test_mixed_versions.py::test_queue_of_the_older_version_gets_a_cold_tier_and_refuses_that_version
        """,
        "passes of the cold tier killed at any step, two at a time, and Redis with them: nothing lost or doubled": """
            bulk/test_cold_kills.py::test_kill_at_every_step_leaves_one_owner
            bulk/test_cold_kills.py::test_other_pass_at_every_step_leaves_one_owner
            bulk/test_cold_kills.py::test_messages_are_those_of_a_dict
            bulk/test_cold_sigkill.py::test_each_message_is_delivered_once_over_kills_of_passes_and_redis
            bulk/test_cold_folder.py::test_first_passes_at_a_time_have_one_folder
        """,
        "cold tier on a full disk or a full Redis, with odd or lost files: one error, all else comes back": """
            bulk/test_cold_folder.py::test_full_disk_is_one_error_and_loses_nothing
            bulk/test_cold_folder.py::test_full_redis_is_relieved_and_takes_back_when_it_has_room
            bulk/test_cold_folder.py::test_odd_file_is_one_error_and_the_others_come_back
            bulk/test_cold_folder.py::test_spilled_file_that_is_gone_is_an_error_after_all_others_are_back
            bulk/test_cold_folder.py::test_redis_that_forgot_that_a_file_is_back_gets_it_again
            bulk/test_cold_folder.py::test_redis_that_forgot_that_a_file_was_divided_is_told_again
        """,
        "package removed or replaced while a process runs: it goes on": """
            failures/test_upgrades.py::test_worker_without_its_package
            failures/test_upgrades.py::test_dashboard_without_its_package
        """,
        "maxmemory full: drains to 0, then accepts": """
            failures/test_server.py::test_full_redis_is_drained_and_then_accepts_sends
            lua/test_full.py::test_all_other_calls_are_executed
        """,
    },
    "time": {
        "client clock a day off: no effect": """
            failures/test_time.py::test_process_with_a_wrong_clock_sends_and_consumes_normally
            behaviour/test_days.py::test_wrong_client_clock_makes_no_difference
        """,
        "server clock an hour off: bounded": """
        failures/test_time.py::test_server_clock_set_forward_redelivers_only_messages_in_flight
            failures/test_time.py::test_server_clock_set_back_delays_messages_by_that_time_and_tokens_rise
            failures/test_time.py::test_server_clock_steps_lose_nothing_and_duplicate_only_messages_in_flight
            failures/test_time.py::test_results_and_settled_ids_go_without_a_consumer_but_not_before_their_time
        """,
        "local waits are monotonic": """
            failures/test_time.py::test_local_waits_are_monotonic
        """,
    },
    "client": {
        "RESP2 and RESP3": """
            failures/test_client.py::test_every_operation_works_with_both_protocols
            unit/test_executor_clients.py::test_blocking_client_works_with_both_protocols
        """,
        "hiredis and without": """
            failures/test_client.py::test_every_operation_works_without_hiredis
        """,
        "black-holed connection: recovers within its time-out + 1 s": """
        failures/test_client.py::test_worker_with_silent_connections_recovers_after_its_socket_timeout
            unit/test_executor_lost_replies.py::test_silent_connection_is_replaced_after_its_timeout
        """,
        "connection pool shared with the application": """
            failures/test_client.py::test_a_pool_is_shared_with_the_application
            failures/test_client.py::test_queue_waits_for_a_pool_that_the_application_has_exhausted
            failures/test_outages.py::test_consumer_with_a_pool_of_one_connection_is_refused_at_once
        """,
    },
    "names and data": {
        "hostile queue names and ids: refused or kept apart": """
            failures/test_names.py::test_hostile_names_and_ids_are_refused
            failures/test_names.py::test_queues_with_similar_names_are_separate
            failures/test_names.py::test_similar_ids_are_separate
            unit/test_keys.py::test_different_queues_share_no_key
            unit/test_keys.py::test_a_hostile_id_is_refused
        """,
        "any bytes round-trip": """
            failures/test_names.py::test_any_bytes_survive_the_round_trip
            unit/test_codec.py::test_any_bytes_survive_the_round_trip
        """,
        "undecodable payload or JSON bomb: dead letter, worker lives": """
            failures/test_names.py::test_undecodable_payload_is_dead_and_the_worker_continues
            behaviour/test_payloads.py::test_undecodable_payload_goes_to_the_dead_letter_and_the_worker_continues
        """,
    },
    "repair": {
        "ids in the wrong places": """
            failures/test_repair.py::test_id_in_pending_and_unack_is_not_delivered_twice
            failures/test_repair.py::test_entry_of_ready_without_a_record_is_delivered
            failures/test_repair.py::test_message_with_a_record_of_another_state_is_delivered
            failures/test_repair.py::test_random_damage_is_repaired_and_every_payload_delivered
            lua/test_cases.py::test_call_does_what_its_table_says
        """,
        "payload without place": """
            failures/test_repair.py::test_payload_without_a_place_is_delivered_at_once
        failures/test_repair.py::test_message_that_lost_its_lease_entry_can_still_be_acked_late
            failures/test_repair.py::test_rescheduling_by_repair_is_logged
        """,
        "place without payload": """
            failures/test_repair.py::test_place_without_payload_is_deleted_and_reported
            failures/test_repair.py::test_fields_without_a_message_are_deleted
            failures/test_repair.py::test_delivery_without_a_message_is_deleted_by_a_light_repair
            failures/test_repair.py::test_a_message_with_retries_that_are_no_number_gets_the_default
        """,
        "counters, wake-ups, the dead letter and unknown fields": """
            failures/test_repair.py::test_wrong_counters_are_recounted
            failures/test_repair.py::test_only_one_wakeup_is_kept
            failures/test_repair.py::test_partly_deleted_dead_message_is_repaired
            failures/test_repair.py::test_result_without_entry_gets_one_until_its_retention_is_over
            failures/test_repair.py::test_what_another_program_adds_to_the_dead_letter_is_trimmed_like_any_entry
            failures/test_repair.py::test_dead_message_of_another_program_is_not_shown
            failures/test_repair.py::test_unknown_field_is_reported_and_kept
        """,
        "an event log that cannot be written": """
            failures/test_repair.py::test_log_that_cannot_be_written_is_reported_and_repaired
            failures/test_repair.py::test_log_that_can_be_written_again_has_its_count_reset
            failures/test_repair.py::test_setting_that_is_not_delayqs_is_switched_off
            failures/test_repair.py::test_entries_lost_before_the_log_was_switched_off_are_reported
        """,
        "what is healthy is left alone, also beside producers and consumers": """
            failures/test_repair.py::test_repair_does_not_change_a_healthy_queue
            failures/test_repair.py::test_examine_does_not_register_a_queue
            failures/test_repair.py::test_invalid_deep_option_is_refused
            failures/test_repair.py::test_repair_under_load_loses_and_duplicates_nothing
            failures/test_repair.py::test_long_repair_under_load_loses_and_duplicates_nothing
        """,
        "delayq doctor heals and reports": """
            cli/test_doctor.py::test_reports_problems_and_changes_nothing
            cli/test_doctor.py::test_repair_fixes_findings
            cluster/test_repair.py::test_message_without_a_place_is_repaired_and_delivered
            cli/test_doctor.py::test_light_check_asks_for_a_deep_one
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


@pytest.mark.table("named", CLAUSES)
def test_every_failure_has_existing_tests_and_one_always_runs(named):
    always = []
    for test in named:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test
        if not any("torture" in decorator for decorator in functions_of(file)[name]):
            always.append(name)
    assert always


def test_every_test_of_failures_is_in_the_table():
    here = {
        f"failures/{file.name}::{name}"
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for name in functions_of(f"failures/{file.name}")
    }
    assert here <= {test for clauses in PROVOKED.values() for named in clauses.values() for test in named.split()}
