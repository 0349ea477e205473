"""Forecasts: how long one takes with 1 M and with 10 M pending messages, and the longest script in it.

The messages are due at random over a week, and a third has a name. Only what is read here is stored of them. A forecast
of a week by the day and by the hour, and one of six days by the minute, which is nearly the most. Then `stats` and the
pages of the dashboard.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from delayq import DelayQueue
from delayq.queue.inspecting.forecast_periods import Unit
from measure.backlog import slowlog
from measure.bench_server import QUEUE, BenchServer, seconds_of
from measure.depth import reason_without_ten_million
from measure.figure import MILLISECONDS, Figure, LeftOut, Measurement, Reading, at_most
from measure.operating import looking, looking_figures

MILLION = 1_000_000
PERIODS: dict[Unit, str] = {"day": "7d", "hour": "7d", "minute": "6d"}
"""Units of time, and until when each is forecast."""
NAMES = {"1m": "1 M", "10m": "10 M"}
TURNS = 7
AT_ONCE = 1000
WEEK = 7 * 86_400_000
FILL = """
local now, due, names, messages = redis.call('TIME')[1] * 1000, {}, {}, {}
for i = 1, tonumber(ARGV[2]) do
  due[2 * i - 1], due[2 * i] = now + math.random(tonumber(ARGV[3])), ARGV[1] .. '-' .. i
  messages[2 * i - 1], messages[2 * i] = due[2 * i], i
  if i % 3 == 0 then names[#names + 1], names[#names + 2] = due[2 * i], 'name=remind' end
end
redis.call('ZADD', KEYS[1], unpack(due))
redis.call('HSET', KEYS[2], unpack(names))
redis.call('HSET', KEYS[3], unpack(messages))
"""
"""Stores some pending messages, with random due times."""


def forecasting(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of forecasts, and of the longest script, with each number of pending messages."""
    reason = reason_without_ten_million(server)
    fill = server.client.register_script(FILL)
    keys = [server.calls.keys.pending, server.calls.keys.attributes, server.calls.keys.messages]
    server.empty()
    filled = 0
    for name, n in zip(NAMES, [server.many(MILLION)] + ([] if reason else [10 * MILLION]), strict=False):
        while filled < n:
            fill(keys, [f"m{filled:08}", min(AT_ONCE, n - filled), WEEK])
            filled += AT_ONCE
        with slowlog(server) as longest, DelayQueue(QUEUE, url=server.url) as queue:
            queue.forecast()  # which loads what it needs
            for unit, until in PERIODS.items():
                took = [1000 * seconds_of(lambda: queue.forecast(until, unit)) for _ in range(TURNS)]  # noqa: B023
                yield Reading(f"forecast_{unit}_{name}", statistics.median(took))
        scripts = {script: took for script, took in longest.items() if script in {"forecast", "sample_names", "counts"}}
        slowest = max(scripts, key=lambda script: scripts[script], default="")
        yield Reading(f"forecast_script_{name}", scripts.get(slowest, 0.0), note=slowest)
        yield from looking(server, name)
    server.empty()
    if reason:
        raise LeftOut(f"10 M pending: {reason}")


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = []
    for name, title in NAMES.items():
        goal = at_most(50, MILLISECONDS)
        figures += [
            Figure(f"forecast_day_{name}", f"forecast of 7 days, {title} pending", goal, MILLISECONDS),
            Figure(f"forecast_hour_{name}", f"forecast of 169 hours, {title} pending", goal, MILLISECONDS),
            Figure(f"forecast_minute_{name}", f"forecast of 8,641 minutes, {title} pending", None, MILLISECONDS),
            Figure(
                f"forecast_script_{name}",
                f"longest script of a forecast, {title} pending",
                at_most(10, MILLISECONDS),
                MILLISECONDS,
            ),
            *looking_figures(name, title),
        ]
    return [Measurement("forecasting", forecasting, figures, once=True)]
