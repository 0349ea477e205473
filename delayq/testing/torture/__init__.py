"""Crash tests of the delivery guarantees: run a workload under faults, record it, and check the record.

Started by `delayq torture`. In the order of a run:

- `round_plan` draws the faults of a round from a seed, `workload` the messages and what producers do with them.
- `runner` carries out the rounds. `environment` provides the Redis server of each and its proxy, `processes` starts
  the producers, workers and inspectors (`process_roles`), `faults` carries out the planned faults.
- Each process writes a `history` of its calls (`recorded_calls`) and callbacks. `final_scan` adds what Redis holds.
- `timelines` merges the histories by message id; `checker` applies `message_rules`, `start_rules` and `history_rules`.
"""
