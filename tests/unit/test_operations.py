"""Operations are generators: they are driven here by hand, with neither Redis nor clock."""

from datetime import UTC, datetime

import pytest

from delayq import CancelOutcome, ConfigurationError, NewMessage, PayloadError, RescheduleOutcome, SendStatus
from delayq.calls import Calls
from delayq.codec import BytesCodec, JsonCodec
from delayq.config import read_settings
from delayq.errors import OutcomeUnknown, QueueFullError, ServerError
from delayq.inspector import queue_names
from delayq.keys import Keys
from delayq.message import Tools
from delayq.operation import begun, single
from delayq.producer import SLICE, SLICE_BYTES, Producer, SentMany, due_text
from delayq.steering import cancel, reschedule
from delayq.values import Call, Command
from tests.support.flow import Asking

CALLS = Calls(Keys.of("delayq", "unit"))


class Talk:
    """An operation, the rounds it has asked for, and what it came to."""

    def __init__(self, operation):
        self.operation = operation
        self.result = None
        self.ended = False
        self.round = []
        self._advance(lambda: next(operation))

    def answer(self, *answers):
        self._advance(lambda: self.operation.send(list(answers)))
        return self

    def fail(self, error):
        self._advance(lambda: self.operation.throw(error))

    def _advance(self, step):
        try:
            self.round = list(step())
        except StopIteration as end:
            self.ended, self.result, self.round = True, end.value, []


@pytest.fixture
def tools():
    return Tools(Asking(), read_settings({}), lambda data: data)


@pytest.fixture
def producer(tools):
    return Producer(tools, JsonCodec())


def many(producer, messages, **options):
    return Talk(producer.send_many(messages, **{"delay": 0, "retries": None, "replace": False, "run": None} | options))


def one(producer, *, replace=False, **options):
    def operation():
        outgoing = producer.outgoing(**{"payload": 1, "due": 0, "retries": None, "id": "a", "headers": None} | options)
        (sent,) = yield from producer.send([outgoing], replace=replace)
        return sent

    return Talk(operation())


# Beginning


def test_a_single_call_gives_its_answer():
    call = CALLS.purge()
    talk = Talk(single(call))
    assert talk.round == [call]
    assert talk.answer(5).result == 5


def test_a_wrong_argument_comes_out_at_the_beginning():
    with pytest.raises(ConfigurationError):
        begun(cancel(Tools(CALLS, read_settings({}), bytes), "a b"))


def test_what_has_begun_goes_on_as_if_it_had_not():
    operation, writes = begun(cancel(Tools(CALLS, read_settings({}), bytes), "a"))
    assert writes
    talk = Talk(operation)
    assert [call.script.name for call in talk.round] == ["cancel"]
    assert talk.answer("1").result is CancelOutcome.CANCELLED


def test_who_only_reads_writes_nothing():
    assert not begun(single(CALLS.counts()))[1]
    assert not begun(queue_names("delayq"))[1]


def test_what_has_begun_is_told_of_failures():
    def operation():
        try:
            yield [CALLS.purge()]
        except ServerError as error:
            (answer,) = yield [CALLS.counts()]
            return answer, str(error)

    talk = Talk(begun(operation())[0])
    talk.fail(ServerError("boom"))
    assert [call.script.name for call in talk.round] == ["counts"]
    assert talk.answer("counted").result == ("counted", "boom")


def test_an_operation_without_a_request_may_be_over_at_once(producer):
    operation, writes = begun(producer.send_many([], delay=0, retries=None, replace=False, run=None))
    assert not writes
    assert list(Talk(operation).result) == []


# Sending


@pytest.mark.parametrize(
    ("digit", "status", "new"),
    [
        ("1", SendStatus.NEW, True),
        ("0", SendStatus.EXISTS, False),
        ("2", SendStatus.REPLACED, False),
        ("3", SendStatus.RUNNING, False),
        ("5", SendStatus.SETTLED, False),
    ],
)
def test_a_send_says_what_became_of_it(producer, digit, status, new):
    sent = one(producer).answer(digit).result
    assert (sent.id, sent.status, sent.new) == ("a", status, new)


def test_a_send_carries_everything_in_one_call(producer):
    talk = one(producer, payload={"user": 42}, due=5000, retries=7, headers={"b": "c"}, replace=True)
    (send,) = talk.round
    assert send.options == {"replace": True, "max_length": None, "run": ""}
    assert send.what == [("a", 5000, 7, b'{"user":42}', b'{"b":"c"}')]


def test_a_send_without_an_id_makes_one_before_it_is_tried(producer):
    talk = one(producer, id=None)
    assert len(talk.round[0].what[0].id) == 22
    assert talk.answer("1").result.id


def test_an_id_that_is_spent_is_collected_and_sent_again(producer):
    talk = one(producer).answer("4")
    assert [ask.name for ask in talk.round] == ["collect_garbage", "send"]
    assert talk.round[0].options["ids"] == ("a",)
    assert talk.answer(None, "1").result.new


def test_a_send_in_doubt_names_its_id(producer):
    for talk in (one(producer, id=None), one(producer).answer("4")):
        id = talk.round[-1].what[0].id
        with pytest.raises(OutcomeUnknown) as caught:
            talk.fail(OutcomeUnknown("silence"))
        assert caught.value.ids == (id,)


def test_many_go_in_slices_of_one_round_trip(producer):
    talk = many(producer, range(2 * SLICE + 1), delay="1h", retries=0)
    assert [len(send.what) for send in talk.round] == [SLICE, SLICE, 1]
    assert {(message.due, message.retries) for send in talk.round for message in send.what} == {(3_600_000, 0)}
    sent = talk.answer("1" * SLICE, "1" * SLICE, "0").result
    assert len(sent) == 2 * SLICE + 1
    assert len(sent.new) == 2 * SLICE


def test_large_payloads_make_short_slices(tools):
    producer = Producer(tools, BytesCodec())
    talk = many(producer, [b"x" * (SLICE_BYTES // 2)] * 5)
    assert [len(send.what) for send in talk.round] == [2, 2, 1]


def test_messages_with_times_of_their_own_stand_among_plain_ones(producer):
    at = datetime(2027, 1, 1, tzinfo=UTC)
    talk = many(producer, [1, NewMessage(2, delay=5, retries=9, id="b", headers={"c": "d"}), NewMessage(3, at=at)])
    plain, delayed, timed = talk.round[0].what
    assert (plain.due, plain.retries, plain.payload) == (0, 3, b"1")
    assert delayed == ("b", 5000, 9, b"2", b'{"c":"d"}')
    assert (timed.due, timed.retries) == (f"@{round(at.timestamp() * 1000)}", 3)


def test_everything_is_checked_before_the_first_is_sent(producer):
    messages = iter([*range(5 * SLICE), object()])
    with pytest.raises(PayloadError):
        many(producer, messages)
    assert next(messages, "all read") == "all read"


def test_spent_ids_among_many_are_collected_and_sent_again_in_their_places(producer):
    talk = many(producer, [NewMessage(n, id=f"m{n}") for n in range(6)], run="r").answer("141401")
    assert talk.round[0].options["ids"] == ("m1", "m3")
    assert [message.id for message in talk.round[1].what] == ["m1", "m3"]
    assert talk.round[1].options["run"] == "r"
    sent = talk.answer(None, "12").result
    assert "".join(sent._digits) == "111201"
    assert sent.new == ["m0", "m1", "m2", "m5"]


def test_every_call_of_a_run_names_it(producer):
    talk = many(producer, range(SLICE + 1), run="nightly:2027-01-01")
    assert [send.options["run"] for send in talk.round] == ["nightly:2027-01-01"] * 2


@pytest.mark.parametrize("run", ["", "a b", "x" * 129, "é", 5, b"r"])
def test_a_run_has_a_name_like_an_id(producer, run):
    with pytest.raises(ConfigurationError, match="run must be 1 to 128 of"):
        many(producer, [1], run=run)


def test_many_in_doubt_name_the_ids_that_may_not_be_stored(producer):
    messages = [NewMessage(n, id=f"m{n}") for n in range(3)]
    talk = many(producer, messages)
    with pytest.raises(OutcomeUnknown) as caught:
        talk.fail(OutcomeUnknown("silence"))
    assert caught.value.ids == ("m0", "m1", "m2")
    talk = many(producer, messages).answer("141")
    with pytest.raises(OutcomeUnknown) as caught:
        talk.fail(OutcomeUnknown("silence"))
    assert caught.value.ids == ("m1",)


def test_another_error_passes_through(producer):
    with pytest.raises(QueueFullError):
        many(producer, [1]).fail(QueueFullError("full"))


def test_what_became_of_many_is_a_sequence():
    assert SentMany(["a"], "5")[0].status is SendStatus.SETTLED
    sent = SentMany(["a", "b", "c", "d"], "1023")
    assert len(sent) == 4
    assert [one.id for one in sent] == sent.ids == ["a", "b", "c", "d"]
    assert sent[0].new
    assert sent[-1].status is SendStatus.RUNNING
    assert [one.status for one in sent[1:3]] == [SendStatus.EXISTS, SendStatus.REPLACED]
    assert sent[::2].new == ["a"]
    assert sent.new == ["a"]
    assert repr(sent) == "<SentMany 4 messages, 1 new>"
    with pytest.raises(IndexError):
        sent[4]


def test_a_due_time_is_a_delay_or_a_time():
    assert due_text("1s", None) == 1000
    assert due_text(None, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == "@1000"
    for both in ((None, None), (0, datetime.now(UTC))):
        with pytest.raises(ConfigurationError):
            due_text(*both)


# Steering and looking


@pytest.mark.parametrize(
    ("digit", "outcome"),
    [
        ("1", CancelOutcome.CANCELLED),
        ("2", CancelOutcome.RUNNING),
        ("3", CancelOutcome.DEAD),
        ("0", CancelOutcome.GONE),
    ],
)
def test_a_cancel_is_answered_by_exactly_one_of_four(tools, digit, outcome):
    assert Talk(cancel(tools, "a")).answer(digit).result is outcome


@pytest.mark.parametrize(
    ("digit", "outcome"),
    [
        ("1", RescheduleOutcome.RESCHEDULED),
        ("2", RescheduleOutcome.RUNNING),
        ("3", RescheduleOutcome.DEAD),
        ("0", RescheduleOutcome.GONE),
    ],
)
def test_a_reschedule_is_answered_by_exactly_one_of_four(tools, digit, outcome):
    talk = Talk(reschedule(tools, "a", "1s", None))
    assert talk.round[0].what == [("a", 1000)]
    assert talk.answer(digit).result is outcome


def test_the_names_of_queues_are_read_to_the_end_and_sorted():
    talk = Talk(queue_names("delayq"))
    assert isinstance(talk.round[0], Command)
    assert not isinstance(talk.round[0], Call)
    talk.answer([b"17", [b"b", b"a"]])
    assert "17" in [str(argument, "ascii") for argument in talk.round[0].args if isinstance(argument, bytes)]
    assert talk.answer([b"0", [b"a", b"c"]]).result == ["a", "b", "c"]
