"""What sends a message again and again: the room behind `queue.schedules`.

From the bottom: `timetable` says when, `definition` what, `standing` how it stands in Redis, `placing` puts it there,
`info` tells of it, and `face` is what users call. Consumers fire what is due in `flows.recurring`.
"""
