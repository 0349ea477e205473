"""The options of a queue are validated once, when it is made."""

import math
import pydoc
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from typing import get_type_hints

import pytest

from delayq import Backoff, ConfigurationError, DelayqError, QueueOptions
from delayq.broker.transport.server_url import find_url
from delayq.options import MAX_PREFETCH, MAX_REPLICAS, Settings, read_settings
from delayq.values.backoff import FailurePolicy
from delayq.values.checks import MAX_CONCURRENCY, MAX_RETRIES
from delayq.values.times import HORIZON

DURATIONS = {
    "ahead": (0, 1000),
    "settle_within": (0, 1000),
    "tick": (10, 3_600_000),
    "lease": (100, None),
    "max_consume_duration": (10, None),
    "nack_delay": (0, None),
    "unknown_for": (0, None),
    "priority_step": (1, 86_400_000),
    "grace": (0, None),
    "dead_ttl": (0, None),
    "dedupe_window": (0, None),
    "retention": (0, HORIZON),
    "replication_timeout": (1, 2500),
    "deadline": (1, None),
    "socket_timeout": (10, None),
}
"""Minimum and maximum of each option in milliseconds."""

NUMBERS = {
    "concurrency": (1, MAX_CONCURRENCY),
    "prefetch": (0, MAX_PREFETCH),
    "fetch_limit": (1, 1_000_000),
    "default_retries": (0, MAX_RETRIES),
    "max_payload": (1, 512 << 20),
    "max_length": (1, 1 << 40),
    "dead_max": (0, 1 << 40),
    "events_max_len": (1000, 1 << 40),
    "events_max_bytes": (1 << 20, 1 << 40),
    "dedupe_max": (1, 1 << 40),
    "replicas": (1, MAX_REPLICAS),
    "max_snoozes": (0, 1 << 31),
    "max_result": (1, 1 << 20),
    "running": (1, 1_000_000),
}
OPTIONAL = {"prefetch", "fetch_limit", "max_length", "running", "dedupe_window", "events", "priority_step"}
SWITCHES = ["strict", "events"]
SETTING = {"events_max_len": "events", "max_snoozes": "policy.max_snoozes"}
"""Settings whose names differ from their options."""
ELSEWHERE = {
    "url",
    "redis",
    "prefix",
    "codec",
    "durability",
    "keep_errors",
    "owner",
    "is_failure",
    "lifespan",
    "breaker",
    "rate_limit",
    "burst",
    "lateness_slo",
    "redact",
    "partitions",
}


def test_every_option_is_covered_here():
    assert set(QueueOptions.__annotations__) == set(DURATIONS) | set(NUMBERS) | set(SWITCHES) | ELSEWHERE


def test_help_lists_every_option_with_its_meaning():
    shown = " ".join(pydoc.render_doc(QueueOptions, renderer=pydoc.plaintext).replace("|", "").split())
    for name, kind in get_type_hints(QueueOptions, include_extras=True).items():
        (meaning,) = kind.__metadata__
        assert meaning.endswith("."), name
        assert " ".join(f"{name} {meaning}".replace("|", "").split()) in shown


def test_defaults_are_as_documented():
    assert read_settings({}) == Settings(
        ahead=25,
        settle_within=10,
        tick=1000,
        lease=30_000,
        max_consume_duration=600_000,
        concurrency=1,
        prefetch=None,
        fetch_limit=None,
        default_retries=3,
        policy=FailurePolicy(Backoff.exponential(5, factor=5, max=600, jitter=0.2), None, 1000),
        breaker=None,
        rate_limit=None,
        running=None,
        unknown_for=3_600_000,
        owner="",
        grace=30_000,
        max_payload=1 << 20,
        max_length=None,
        dead_max=10_000,
        dead_ttl=30 * 86_400_000,
        priority_step=None,
        lateness_slo=None,
        redact=None,
        events_max_bytes=256 << 20,
        events=None,
        dedupe_window=None,
        dedupe_max=1_000_000,
        retention=0,
        max_result=1 << 16,
        replicas=0,
        replication_timeout=1000,
        deadline=30_000,
        socket_timeout=5000,
        strict=False,
    )


@pytest.mark.parametrize("value", [True, "none", None, ["text"]], ids=repr)
def test_errors_are_kept_as_text_or_class(value):
    with pytest.raises(ConfigurationError, match="keep_errors must be 'text' or 'class', not"):
        read_settings({"keep_errors": value})


@pytest.mark.parametrize("function", [True, "TimeoutError", 5, []], ids=repr)
def test_is_failure_must_be_a_function(function):
    with pytest.raises(ConfigurationError, match="is_failure must be a function of an exception, not"):
        read_settings({"is_failure": function})


def test_burst_goes_with_its_rate():
    assert read_settings({"rate_limit": "200/s"}).rate_limit == (5000, 21)
    assert read_settings({"rate_limit": "200/s", "burst": 3}).rate_limit == (5000, 3)
    assert read_settings({"rate_limit": None, "burst": None}).rate_limit is None


@pytest.mark.parametrize("owner", ["", "a b", "a:b", "é", "x" * 65, 5, True, b"a"])
def test_invalid_owner_is_refused(owner):
    with pytest.raises(ConfigurationError, match=r"owner must be 1 to 64 of A-Z a-z 0-9 \. _ -, not"):
        read_settings({"owner": owner})


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    "value",
    [math.inf, math.nan, -1, -0.001, True, False, 10**18, 10**5000, "", "1y", "-1s", [], object()],
    ids=type,
)
def test_a_duration_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match="delay" if name == "nack_delay" else name):
        read_settings({name: value})


@pytest.mark.table(("name", "bounds"), DURATIONS.items())
def test_duration_can_equal_its_limits(name, bounds):
    least, most = bounds
    read_settings({name: timedelta(milliseconds=least)})
    if least:
        with pytest.raises(ConfigurationError):
            read_settings({name: timedelta(milliseconds=least - 1)})
    if most:
        read_settings({name: timedelta(milliseconds=most)})
        with pytest.raises(ConfigurationError):
            read_settings({name: timedelta(milliseconds=most + 1)})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, 1.0, "1", -1, 10**18, 10**5000, math.inf, math.nan, [], "1s"], ids=type)
def test_a_number_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number from"):
        read_settings({name: value})


@pytest.mark.table(("name", "bounds"), NUMBERS.items())
def test_number_can_equal_its_limits(name, bounds):
    least, most = bounds
    for value in (least, most):
        settings = read_settings({name: value, "events": True, "durability": "replicated"})
        assert attrgetter(SETTING.get(name, name))(settings) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigurationError):
            read_settings({name: value})


@pytest.mark.table("name", [*DURATIONS, *NUMBERS, *SWITCHES])
def test_only_optional_options_can_be_none(name):
    if name in OPTIONAL:
        assert getattr(read_settings({name: None}), name) is None
        assert getattr(read_settings({}), name) is None
    else:
        with pytest.raises(ConfigurationError):
            read_settings({name: None})


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", [1, 0, "yes", "false", []], ids=repr)
def test_switch_must_be_true_or_false(name, value):
    with pytest.raises(ConfigurationError, match=f"{name} must be True or False"):
        read_settings({name: value})


def test_replicas_apply_only_to_replicated_durability():
    assert read_settings({"replicas": 2}).replicas == 0
    assert read_settings({"replicas": 2, "durability": "stored"}).replicas == 0
    assert read_settings({"replicas": 2, "durability": "replicated"}).replicas == 2
    assert read_settings({"durability": "replicated"}).replicas == 1


@pytest.mark.parametrize("value", ["Replicated", "", "fsync", None, True, 1, ["replicated"]], ids=repr)
def test_invalid_durability_is_refused(value):
    with pytest.raises(ConfigurationError, match="durability must be 'stored' or 'replicated', not"):
        read_settings({"durability": value})


def test_replication_timeout_is_at_most_half_of_the_socket_timeout():
    assert read_settings({"socket_timeout": "300ms"}).replication_timeout == 150
    assert read_settings({"socket_timeout": "10ms"}).replication_timeout == 5
    assert read_settings({"socket_timeout": 20, "replication_timeout": 10}).replication_timeout == 10_000
    with pytest.raises(ConfigurationError, match="at most half of socket_timeout"):
        read_settings({"socket_timeout": "300ms", "replication_timeout": "151ms"})


def test_strict_is_switched_on_and_off():
    assert read_settings({"strict": True}).strict
    assert not read_settings({"strict": False}).strict


def test_event_log_is_unchanged_switched_on_with_a_length_or_off():
    assert read_settings({"events_max_len": 5000}).events is None
    assert read_settings({"events": True}).events == 100_000
    assert read_settings({"events": True, "events_max_len": 5000}).events == 5000
    assert read_settings({"events": False, "events_max_len": 5000}).events == 0


def test_dedupe_window_is_set_or_switched_off():
    assert read_settings({"dedupe_window": "1h"}).dedupe_window == 3_600_000
    assert read_settings({"dedupe_window": 0}).dedupe_window == 0
    assert read_settings({"dedupe_window": "1h", "dedupe_max": 7}).dedupe_max == 7


def test_nack_delay_can_be_a_backoff():
    backoff = Backoff.exponential(1)
    assert read_settings({"nack_delay": backoff}).policy.backoff is backoff
    assert read_settings({"nack_delay": "1m"}).policy.backoff == Backoff.constant(60)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("concurency", "concurrency"),
        ("max_retries", "default_retries"),
        ("retries", "default_retries"),
        ("Lease", "lease"),
        ("ticks", "tick"),
        ("nackdelay", "nack_delay"),
        ("dead_tll", "dead_ttl"),
        ("socket_time_out", "socket_timeout"),
    ],
)
def test_unknown_option_error_suggests_the_closest_option(wrong, right):
    with pytest.raises(ConfigurationError, match=f"unknown option '{wrong}'") as caught:
        read_settings({wrong: 1})
    if wrong != "max_retries":
        assert f"did you mean '{right}'?" in str(caught.value)


def test_unknown_option_without_a_close_match_has_no_suggestion():
    with pytest.raises(ConfigurationError, match=r"unknown option 'zzzzzz'$"):
        read_settings({"zzzzzz": 1})


def test_a_configuration_error_is_also_a_value_error():
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(ConfigurationError, DelayqError)


def test_url_comes_from_the_option_the_environment_or_the_default(monkeypatch):
    assert find_url({}) == "redis://localhost:6379/0"
    monkeypatch.setenv("DELAYQ_URL", "redis://from-environment")
    assert find_url({}) == "redis://from-environment"
    assert find_url({"url": "redis://from-option"}) == "redis://from-option"


def test_every_setting_is_an_option():
    renamed = {"policy": "nack_delay"}
    assert {renamed.get(field.name, field.name) for field in fields(Settings)} <= set(QueueOptions.__annotations__)
