"""What workers take up from a consumer's workbench, and what they put back."""

import threading
from types import SimpleNamespace

import pytest

from delayq.answers import Delivery
from delayq.errors import UndecodableError
from delayq.message import Holding, Message
from delayq.verdict import Verdict
from delayq.workbench import Callback, Workbench


def decode(data):
    if data == b"bad":
        raise UndecodableError("undecodable: bad")
    return data.decode()


def holdings(*payloads):
    return [Holding(Delivery(text, 7, text.encode(), 3, 0, 1, b""), 0.0, 0, 30.0) for text in payloads]


def laid(*payloads, most=None):
    """A workbench with these on it, and their holdings."""
    bench = Workbench(Callback(print, most), Message, SimpleNamespace(decode=decode), None)
    held = holdings(*payloads)
    bench.lay(held)
    return bench, held


def payloads(given):
    return [message.payload for message in given]


def test_without_a_batch_one_message_is_taken_up_at_a_time():
    bench, held = laid("a", "b")
    batch, taken, given = bench.take()
    assert taken == held[:1]
    assert given.payload == "a"
    assert held[0].batch is batch
    assert held[1].batch is None
    assert bench.waiting


@pytest.mark.parametrize(("most", "first"), [(1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])])
def test_a_batch_takes_up_what_is_there(most, first):
    bench, held = laid("a", "b", "c", most=most)
    batch, taken, given = bench.take()
    assert payloads(given) == first
    assert taken == held[: len(first)]
    assert {one.batch for one in taken} == {batch}


@pytest.mark.parametrize("most", [None, 5])
def test_where_nothing_is_nothing_is_taken_up(most):
    bench, _ = laid(most=most)
    assert bench.take() is None
    assert not bench.waiting
    assert not bench.finished


@pytest.mark.parametrize("most", [None, 1])
def test_what_has_lost_its_lease_is_not_started(most):
    bench, held = laid("a", most=most)
    held[0].lost = True
    assert bench.take()[2] is None
    ((left, verdict, _, _, took),) = bench.clear()
    assert (left, verdict, took) == (held, Verdict.NOTHING, None)


def test_what_cannot_be_decoded_is_rejected_and_left_out():
    bench, (a, bad, c) = laid("a", "bad", "c", most=3)
    _, taken, given = bench.take()
    assert payloads(given) == ["a", "c"]
    assert taken == [a, c]
    ((left, verdict, text, _, took),) = bench.clear()
    assert (left, verdict, text, took) == ([bad], Verdict.REJECT, "undecodable: bad", None)


def test_what_is_put_back_is_taken_away_once():
    bench, held = laid("a", "b", most=2)
    batch, taken, _ = bench.take()
    bench.put_back(batch, taken, None, None)
    assert bench.finished
    ((done, verdict, _, _, took),) = bench.clear()
    assert (done, verdict) == (held, Verdict.ACK)
    assert took >= 0
    assert not bench.finished
    assert bench.clear() == []


def test_a_recall_takes_what_nobody_has_taken_up_in_its_order():
    bench, held = laid("a", "b", "c")
    bench.take()
    recalled = []
    bench.recall(recalled)
    assert recalled == held[1:]
    assert bench.take() is None


def test_nothing_is_lost_or_doubled_between_many_workers_and_one_who_takes_away():
    bench, held = laid(*(f"m{n}" for n in range(2000)), most=3)
    ended = []

    def work():
        while (taken := bench.take()) is not None:
            bench.put_back(*taken[:2], None, None)
        ended.append(True)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    done = []
    while len(ended) < 8 or bench.finished:
        done += [one.delivery.id for completion in bench.clear() for one in completion.holdings]
    for worker in workers:
        worker.join()
    assert sorted(done) == sorted(one.delivery.id for one in held)


def test_only_the_first_who_asks_concludes_a_batch():
    bench, _ = laid("a")
    batch, _, _ = bench.take()
    answers = []
    asking = [threading.Thread(target=lambda: answers.append(batch.conclude())) for _ in range(20)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert sorted(answers) == [False] * 19 + [True]
