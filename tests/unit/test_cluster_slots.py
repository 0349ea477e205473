"""The cluster protocol finds the node of each request; these tests simulate the nodes."""

import pytest
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as GoneError

from delayq import OutcomeUnknown, ServerError, UnavailableError
from delayq.broker.calls import Calls
from delayq.broker.event_log import await_events
from delayq.broker.keys import Keys, registry
from delayq.broker.requests import Outgoing, RedisCommand
from delayq.broker.transport.cluster import ClusterProtocol, Exchanges, SlotMap
from delayq.broker.transport.failures import NotConnectedError
from delayq.broker.transport.operation import Wait

A, B, C = ("10.0.0.1", 7001), ("10.0.0.2", 7002), ("10.0.0.3", 7003)
QUEUE, OTHER = Keys.of("delayq", "a"), Keys.of("delayq", "b")
SLOT = key_slot(QUEUE.meta.encode())
SLOTS = [
    [0, 8191, [b"10.0.0.1", 7001, b"id-a"], [b"10.0.0.3", 7003, b"id-c"]],
    [8192, 16383, [b"10.0.0.2", 7002, b"id-b"]],
]
HOME = A if SLOT < 8192 else B
AWAY = B if HOME is A else A


class Play:
    """Runs the protocol, replying for the nodes."""

    def __init__(self, *requests, slot_map=None, deadline=10.0):
        self.slot_map = slot_map or SlotMap([A, B])
        self.steps = ClusterProtocol(self.slot_map, deadline=deadline).run(requests, None)
        self.pauses = 0
        self.sent = []
        """What was sent: the node's address, and the names of the requests."""

    def run(self, *replies):
        """Reply to each exchange, except those about slots; returns the result."""
        left = iter(replies)
        step = next(self.steps)
        try:
            while True:
                if isinstance(step, Wait):
                    self.pauses += 1
                    step = self.steps.send(None)
                    continue
                if isinstance(step, Exchanges):  # side by side
                    step = self.steps.send([self.reply(one, left) for one in step])
                else:
                    step = self.steps.send(self.reply(step, left))
        except StopIteration as end:
            return end.value

    def reply(self, step, left):
        names = [one.name for one in step.sent]
        list(step.data)
        if names == ["CLUSTER"]:
            return [SLOTS]
        self.sent.append((step.node, *names))
        return next(left)


def sending(keys=QUEUE):
    return Calls(keys).send([Outgoing("id", 0, 3, b"1", b"")], replace=False, max_length=None)


def moved(to, slot=SLOT):
    return MovedError(f"{slot} {to[0]}:{to[1]}")


def ask(to, slot=SLOT):
    return AskError(f"{slot} {to[0]}:{to[1]}")


def owner(key):
    return A if key_slot(key.encode()) < 8192 else B


def test_requests_go_to_the_nodes_of_their_keys():
    everything = [sending(Keys.of("delayq", f"q{number}")) for number in range(20)]
    play = Play(*everything)
    nodes = [owner(call.keys[0]) for call in everything]
    assert play.run(*([b"1"] * nodes.count(node) for node in dict.fromkeys(nodes))) == ["1"] * 20
    assert {to for to, *_ in play.sent} == {A, B}


def test_replies_are_in_the_order_of_the_requests():
    requests = [RedisCommand(("GET", f"key-{number}"), bytes.decode) for number in range(30)]
    nodes = [owner(f"key-{number}") for number in range(30)]
    replies = [[b"%d" % number for number in range(30) if nodes[number] == node] for node in dict.fromkeys(nodes)]
    assert Play(*requests).run(*replies) == [str(number) for number in range(30)]


def test_request_without_a_key_goes_to_the_node_of_its_neighbour():
    key = registry("delayq")
    requests = [
        RedisCommand(("INFO",), int),
        RedisCommand(("HGET", QUEUE.meta, "x"), int),
        RedisCommand(("TIME",), int),
    ]
    play = Play(*requests)
    assert play.run([1, 2, 3]) == [1, 2, 3]
    assert play.sent == [(HOME, "INFO", "HGET", "TIME")]
    play = Play(RedisCommand(("SISMEMBER", key, "q"), int), RedisCommand(("TIME",), int))
    play.run([1, 2])
    assert play.sent == [(owner(key), "SISMEMBER", "TIME")]


def test_xread_goes_to_the_node_of_its_stream():
    play = Play(await_events(Calls(QUEUE), 5, limit=10, timeout=1))
    play.run([None])
    assert play.sent == [(HOME, "XREAD")]


def test_moved_is_followed_at_once_and_remembered():
    play = Play(sending())
    assert play.run([moved(C)], [b"1"]) == ["1"]
    assert play.sent == [(HOME, "send"), (C, "send")]
    assert play.pauses == 0
    again = Play(sending(), slot_map=play.slot_map)
    again.run([b"1"])
    assert again.sent == [(C, "send")]


def test_ask_is_followed_at_once_and_not_remembered():
    play = Play(sending())
    assert play.run([ask(C)], [b"OK", b"1"]) == ["1"]
    assert play.sent == [(HOME, "send"), (C, "ASKING", "send")]
    again = Play(sending(), slot_map=play.slot_map)
    again.run([b"1"])
    assert again.sent == [(HOME, "send")]


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
def test_redirections_unknown_to_an_old_client_are_followed(kind):
    play = Play(sending())
    replies = [b"1"] if kind == "MOVED" else [b"OK", b"1"]
    assert play.run([ResponseError(f"{kind} {SLOT} 10.0.0.3:7003")], replies) == ["1"]
    assert play.sent[1][0] == C


def test_redirection_without_a_host_keeps_the_host_of_the_node():
    play = Play(sending())
    play.run([MovedError(f"{SLOT} :7009")], [b"1"])
    assert play.sent[1][0] == (HOME[0], 7009)


def test_addresses_are_remapped_as_the_client_configures():
    slot_map = SlotMap([("seed", 1)], remap=lambda host, port: (f"{host}.mapped", port))
    play = Play(sending(), slot_map=slot_map)
    play.run([b"1"])
    assert play.sent == [((f"{HOME[0]}.mapped", HOME[1]), "send")]


def test_circular_redirections_are_retried_after_a_pause():
    play = Play(sending())
    assert play.run(*([moved(AWAY)], [moved(HOME)]) * 2, [moved(AWAY)], [b"1"]) == ["1"]
    assert play.pauses == 1


def test_request_for_a_migrating_slot_is_retried_after_a_pause():
    play = Play(sending())
    assert play.run([TryAgainError("Multiple keys request during rehashing of slot")], [b"1"]) == ["1"]
    assert play.pauses == 1


def test_unreachable_node_is_tried_last_and_the_slots_are_looked_up_again():
    slot_map = SlotMap([A, B])
    play = Play(sending(), slot_map=slot_map)
    assert play.run(GoneError("reset"), [b"1"]) == ["1"]
    assert play.pauses == 1
    slot_map.mark_failed(A)
    assert slot_map.nodes[-1] == A
    assert slot_map.stale


def test_replies_of_other_nodes_are_kept_when_one_node_fails():
    other = next(key for key in map(str, range(100)) if owner(key) != owner("key"))
    play = Play(RedisCommand(("GET", "key"), bytes.decode), RedisCommand(("GET", other), bytes.decode))
    assert play.run([b"kept"], GoneError("reset"), [b"later"]) == ["kept", "later"]
    assert play.sent == [(owner("key"), "GET"), (owner(other), "GET"), (owner(other), "GET")]


@pytest.mark.parametrize(
    ("error", "known_as"), [(GoneError("reset"), OutcomeUnknown), (NotConnectedError("refused"), UnavailableError)]
)
def test_error_of_an_unreachable_node_says_whether_the_outcome_is_unknown(error, known_as):
    (reply,) = Play(sending(), deadline=0).run(error)
    assert type(reply) is known_as


def test_script_is_loaded_into_the_node_of_an_ask_redirection():
    play = Play(sending())
    replies = play.run([ask(C)], [b"OK", NoScriptError("no script")], [b"sha"], [ask(C)], [b"OK", b"1"])
    assert replies == ["1"]
    assert play.sent[2][0] == C


def test_script_load_goes_to_every_node():
    load = RedisCommand(("SCRIPT", "LOAD", "return 1"), bytes.decode)
    play = Play(load)
    assert play.run([b"sha"], [b"sha"], [b"sha"]) == ["sha"]
    assert {to for to, *_ in play.sent} == {A, B, C}
    (reply,) = Play(load).run([b"sha"], [ResponseError("NOPERM no")], [b"sha"])
    assert isinstance(reply, ServerError)


def durable():
    return [sending(), *Calls(QUEUE).confirm(1, timeout=100)]


def test_confirmation_goes_to_the_node_of_its_send():
    play = Play(*durable())
    assert play.run([b"1", 0, 1]) == ["1", 0, 1]
    assert play.sent == [(HOME, "send", "HINCRBY", "WAIT")]


def test_confirmation_follows_a_send_that_has_moved():
    play = Play(*durable())
    assert play.run([moved(C), moved(C), 1], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.sent[1] == (C, "send", "HINCRBY", "WAIT")


def test_whole_group_is_repeated_if_part_of_it_gets_an_ask_redirection():
    play = Play(*durable())
    play.run([b"1", ask(C), 1], [b"OK", b"1", b"OK", 0, b"OK", 1])
    assert play.sent[1] == (C, "ASKING", "send", "ASKING", "HINCRBY", "ASKING", "WAIT")


def test_confirmation_is_repeated_until_its_send_is_executed():
    play = Play(*durable())
    assert play.run([NoScriptError("no script"), 0, 1], [b"sha"], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.sent[-1] == (HOME, "send", "HINCRBY", "WAIT")


def test_send_is_repeated_if_a_demotion_interrupts_its_wait():
    unblocked = ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed")
    play = Play(*durable())
    assert play.run([b"1", 0, unblocked], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.sent == [(HOME, "send", "HINCRBY", "WAIT")] * 2
    replies = Play(*durable(), deadline=0).run([b"1", 0, unblocked])
    assert type(replies[0]) is OutcomeUnknown
