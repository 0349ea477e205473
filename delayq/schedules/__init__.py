"""Schedules, which send a message again and again: what is behind `queue.schedules`.

`timetable` works out when a schedule occurs, `definition` what it sends, `store` reads and writes it in Redis, and
`info` and `occurrences` describe it for users. Consumers fire what is due: see `worker.schedule_firing`.
"""
