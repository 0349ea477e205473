"""A conversation finds its way through the nodes of a cluster; the nodes are played by this file."""

import pytest
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as GoneError

from delayq import OutcomeUnknown, ServerError, UnavailableError
from delayq.calls import Calls
from delayq.conversation import NotConnectedError
from delayq.keys import Keys, registry
from delayq.operation import Pause
from delayq.routes import RoutedConversation, Routes
from delayq.values import Command, Outgoing

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
    """Carries a conversation on, answering for the nodes."""

    def __init__(self, *requests, routes=None, deadline=10.0):
        self.routes = routes or Routes([A, B])
        self.talk = RoutedConversation(self.routes, deadline=deadline).converse(requests, None)
        self.pauses = 0
        self.said = []
        """What was sent to whom: address, and the names of the requests."""

    def run(self, *answers):
        """Answer exchange by exchange, but for those about slots; returns what the conversation brought."""
        left = iter(answers)
        step = next(self.talk)
        try:
            while True:
                if isinstance(step, Pause):
                    self.pauses += 1
                    step = self.talk.send(None)
                    continue
                names = [one.name for one in step.sent]
                list(step.data)
                if names == ["CLUSTER"]:
                    step = self.talk.send([SLOTS])
                    continue
                self.said.append((step.to, *names))
                step = self.talk.send(next(left))
        except StopIteration as end:
            return end.value


def sending(keys=QUEUE):
    return Calls(keys).send([Outgoing("id", 0, 3, b"1", b"")], replace=False, max_length=None)


def moved(to, slot=SLOT):
    return MovedError(f"{slot} {to[0]}:{to[1]}")


def ask(to, slot=SLOT):
    return AskError(f"{slot} {to[0]}:{to[1]}")


def owner(key):
    return A if key_slot(key.encode()) < 8192 else B


def test_the_requests_of_a_round_trip_go_to_the_nodes_of_their_keys():
    everything = [sending(Keys.of("delayq", f"q{number}")) for number in range(20)]
    play = Play(*everything)
    nodes = [owner(call.keys[0]) for call in everything]
    assert play.run(*([b"1"] * nodes.count(node) for node in dict.fromkeys(nodes))) == ["1"] * 20
    assert {to for to, *_ in play.said} == {A, B}


def test_answers_come_back_in_the_order_of_the_requests():
    requests = [Command(("GET", f"key-{number}"), bytes.decode) for number in range(30)]
    nodes = [owner(f"key-{number}") for number in range(30)]
    replies = [[b"%d" % number for number in range(30) if nodes[number] == node] for node in dict.fromkeys(nodes)]
    assert Play(*requests).run(*replies) == [str(number) for number in range(30)]


def test_what_has_no_key_goes_where_its_neighbour_does():
    key = registry("delayq")
    requests = [Command(("INFO",), int), Command(("HGET", QUEUE.meta, "x"), int), Command(("TIME",), int)]
    play = Play(*requests)
    assert play.run([1, 2, 3]) == [1, 2, 3]
    assert play.said == [(HOME, "INFO", "HGET", "TIME")]
    play = Play(Command(("SISMEMBER", key, "q"), int), Command(("TIME",), int))
    play.run([1, 2])
    assert play.said == [(owner(key), "SISMEMBER", "TIME")]


def test_the_key_of_a_stream_that_is_read_is_found():
    play = Play(Calls(QUEUE).await_events(5, limit=10, timeout=1))
    play.run([None])
    assert play.said == [(HOME, "XREAD")]


def test_moved_is_followed_at_once_and_remembered():
    play = Play(sending())
    assert play.run([moved(C)], [b"1"]) == ["1"]
    assert play.said == [(HOME, "send"), (C, "send")]
    assert play.pauses == 0
    again = Play(sending(), routes=play.routes)
    again.run([b"1"])
    assert again.said == [(C, "send")]


def test_ask_is_followed_at_once_and_not_remembered():
    play = Play(sending())
    assert play.run([ask(C)], [b"OK", b"1"]) == ["1"]
    assert play.said == [(HOME, "send"), (C, "ASKING", "send")]
    again = Play(sending(), routes=play.routes)
    again.run([b"1"])
    assert again.said == [(HOME, "send")]


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
def test_redirections_that_an_old_client_does_not_know_are_followed(kind):
    play = Play(sending())
    replies = [b"1"] if kind == "MOVED" else [b"OK", b"1"]
    assert play.run([ResponseError(f"{kind} {SLOT} 10.0.0.3:7003")], replies) == ["1"]
    assert play.said[1][0] == C


def test_a_node_that_does_not_know_its_address_is_where_it_was_reached():
    play = Play(sending())
    play.run([MovedError(f"{SLOT} :7009")], [b"1"])
    assert play.said[1][0] == (HOME[0], 7009)


def test_an_address_is_mapped_as_the_client_wants_it():
    routes = Routes([("seed", 1)], remap=lambda host, port: (f"{host}.mapped", port))
    play = Play(sending(), routes=routes)
    play.run([b"1"])
    assert play.said == [((f"{HOME[0]}.mapped", HOME[1]), "send")]


def test_a_slot_that_is_sent_in_a_circle_is_tried_again_later():
    play = Play(sending())
    assert play.run(*([moved(AWAY)], [moved(HOME)]) * 2, [moved(AWAY)], [b"1"]) == ["1"]
    assert play.pauses == 1


def test_a_slot_in_motion_is_waited_for():
    play = Play(sending())
    assert play.run([TryAgainError("Multiple keys request during rehashing of slot")], [b"1"]) == ["1"]
    assert play.pauses == 1


def test_a_node_that_is_gone_is_asked_last_and_the_slots_are_looked_up_anew():
    routes = Routes([A, B])
    play = Play(sending(), routes=routes)
    assert play.run(GoneError("reset"), [b"1"]) == ["1"]
    assert play.pauses == 1
    routes.doubt(A)
    assert routes.nodes[-1] == A
    assert routes.stale


def test_what_the_other_nodes_answered_is_kept_when_one_is_gone():
    other = next(key for key in map(str, range(100)) if owner(key) != owner("key"))
    play = Play(Command(("GET", "key"), bytes.decode), Command(("GET", other), bytes.decode))
    assert play.run([b"kept"], GoneError("reset"), [b"later"]) == ["kept", "later"]
    assert play.said == [(owner("key"), "GET"), (owner(other), "GET"), (owner(other), "GET")]


@pytest.mark.parametrize(
    ("error", "known_as"), [(GoneError("reset"), OutcomeUnknown), (NotConnectedError("refused"), UnavailableError)]
)
def test_of_a_node_that_stays_away_it_is_said_whether_it_may_have_heard(error, known_as):
    (answer,) = Play(sending(), deadline=0).run(error)
    assert type(answer) is known_as


def test_a_script_is_loaded_into_the_node_that_lacks_it_also_where_it_was_asked():
    play = Play(sending())
    answers = play.run([ask(C)], [b"OK", NoScriptError("no script")], [b"sha"], [ask(C)], [b"OK", b"1"])
    assert answers == ["1"]
    assert play.said[2][0] == C


def test_loading_ahead_is_for_every_node():
    load = Command(("SCRIPT", "LOAD", "return 1"), bytes.decode)
    play = Play(load)
    assert play.run([b"sha"], [b"sha"], [b"sha"]) == ["sha"]
    assert {to for to, *_ in play.said} == {A, B, C}
    (answer,) = Play(load).run([b"sha"], [ResponseError("NOPERM no")], [b"sha"])
    assert isinstance(answer, ServerError)


def durable():
    return [sending(), *Calls(QUEUE).confirm(1, timeout=100)]


def test_what_follows_goes_with_what_it_is_about():
    play = Play(*durable())
    assert play.run([b"1", 0, 1]) == ["1", 0, 1]
    assert play.said == [(HOME, "send", "HINCRBY", "WAIT")]


def test_what_follows_is_sent_again_with_all_that_has_moved():
    play = Play(*durable())
    assert play.run([moved(C), moved(C), 1], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.said[1] == (C, "send", "HINCRBY", "WAIT")


def test_what_follows_is_sent_again_with_all_though_only_a_part_was_asked_elsewhere():
    play = Play(*durable())
    play.run([b"1", ask(C), 1], [b"OK", b"1", b"OK", 0, b"OK", 1])
    assert play.said[1] == (C, "ASKING", "send", "ASKING", "HINCRBY", "ASKING", "WAIT")


def test_no_confirmation_counts_while_what_it_is_about_is_still_to_be_done():
    play = Play(*durable())
    assert play.run([NoScriptError("no script"), 0, 1], [b"sha"], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.said[-1] == (HOME, "send", "HINCRBY", "WAIT")


def test_a_wait_cut_off_by_a_demotion_has_the_send_repeated():
    unblocked = ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed")
    play = Play(*durable())
    assert play.run([b"1", 0, unblocked], [b"1", 0, 1]) == ["1", 0, 1]
    assert play.said == [(HOME, "send", "HINCRBY", "WAIT")] * 2
    answers = Play(*durable(), deadline=0).run([b"1", 0, unblocked])
    assert type(answers[0]) is OutcomeUnknown
