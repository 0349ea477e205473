"""Operations are generators: these tests drive them without Redis and without a clock."""

from datetime import UTC, datetime

import pytest

from delayq import CancelOutcome, ConfigurationError, NewMessage, PayloadError, RescheduleOutcome, SendStatus
from delayq.broker.batches import BATCH, BATCH_BYTES
from delayq.broker.calls import Calls, SendStatuses
from delayq.broker.context import QueueContext
from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.operation import may_write, single
from delayq.errors import OutcomeUnknown, QueueFullError, ServerError
from delayq.options import read_settings
from delayq.queue.control.registered import queue_names
from delayq.queue.delay_base import RemoveReply, remove
from delayq.queue.sending.due_times import due_text
from delayq.queue.sending.producer import Producer, SentMany
from delayq.queue.sweeps.cancellation import cancel, reschedule
from delayq.values.codec import BytesCodec, JsonCodec
from tests.support.loop_harness import Asking

NOW = 1_800_000_000_000_001
CALLS = Calls(Keys.of("delayq", "unit"))
STARTED, RETURNED = "0", "2"
"""What a leased message was found to be when its consumer was asked to return it."""


class Talk:
    """An operation, its current round of requests, and its result."""

    def __init__(self, operation):
        self.operation = operation
        self.result = None
        self.ended = False
        self.round = []
        self._advance(lambda: next(operation))

    def reply(self, *replies):
        read = [SendStatuses.read(f"{one} {NOW}".encode()) if isinstance(one, str) else one for one in replies]
        self._advance(lambda: self.operation.send(read))
        return self

    def fail(self, error):
        self._advance(lambda: self.operation.throw(error))

    def _advance(self, step):
        try:
            self.round = list(step())
        except StopIteration as end:
            self.ended, self.result, self.round = True, end.value, []


@pytest.fixture
def context():
    return QueueContext(Asking(), read_settings({}), lambda data: data, "q")


@pytest.fixture
def producer(context):
    return Producer(context, JsonCodec())


def many(producer, messages, **options):
    return Talk(producer.send_many(messages, **{"delay": 0, "retries": None, "replace": False, "run": None} | options))


def one(producer, *, replace=False, **options):
    def operation():
        outgoing = producer.outgoing(**{"payload": 1, "due": 0, "retries": None, "id": "a", "headers": None} | options)
        (sent,) = yield from producer.send([outgoing], replace=replace)
        return sent

    return Talk(operation())


# Beginning


def test_single_call_returns_its_reply():
    call = CALLS.purge()
    talk = Talk(single(call))
    assert talk.round == [call]
    assert talk.reply(5).result == 5


def test_invalid_argument_raises_before_the_first_request():
    with pytest.raises(ConfigurationError):
        next(cancel(QueueContext(CALLS, read_settings({}), bytes, "q"), "a b"))


def test_call_that_executes_once_is_marked_as_writing():
    talk = Talk(cancel(QueueContext(CALLS, read_settings({}), bytes, "q"), "a"))
    assert may_write(talk.round)
    assert [call.script.name for call in talk.round] == ["cancel"]
    assert talk.reply("1").result is CancelOutcome.CANCELLED


def test_read_only_operations_are_not_marked_as_writing():
    assert not may_write(next(single(CALLS.counts())))
    assert not may_write(next(queue_names("delayq")))


def test_operation_receives_errors():
    def operation():
        try:
            yield [CALLS.purge()]
        except ServerError as error:
            (reply,) = yield [CALLS.counts()]
            return reply, str(error)

    talk = Talk(operation())
    talk.fail(ServerError("boom"))
    assert [call.script.name for call in talk.round] == ["counts"]
    assert talk.reply("counted").result == ("counted", "boom")


def test_operation_without_requests_ends_at_once(producer):
    operation = producer.send_many([], delay=0, retries=None, replace=False, run=None)
    assert list(Talk(operation).result) == []


# Sending


@pytest.mark.parametrize(
    ("digit", "status", "new"),
    [
        ("1", SendStatus.NEW, True),
        ("0", SendStatus.EXISTS, False),
        ("2", SendStatus.REPLACED, False),
        ("5", SendStatus.SETTLED, False),
    ],
)
def test_send_returns_the_status_of_its_message(producer, digit, status, new):
    sent = one(producer).reply(digit).result
    assert (sent.id, sent.status, sent.new) == ("a", status, new)


def test_replacing_a_leased_message_depends_on_whether_it_has_started(producer):
    assert one(producer, replace=True).reply("3").reply(STARTED).result.status is SendStatus.RUNNING
    assert one(producer, replace=True).reply("3").reply(RETURNED).reply("2").result.status is SendStatus.REPLACED


def test_send_is_one_call_with_all_data(producer):
    talk = one(producer, payload={"user": 42}, due=5000, retries=7, headers={"b": "c"}, replace=True)
    (send,) = talk.round
    assert send.options == {"replace": True, "max_length": None}
    assert send.what == [("a", 5000, 7, b'{"user":42}', b'{"b":"c"}', b"")]


def test_send_without_an_id_makes_one_before_the_first_attempt(producer):
    talk = one(producer, id=None)
    assert len(talk.round[0].what[0].id) == 22
    assert talk.reply("1").result.id


def test_spent_id_is_collected_and_sent_again(producer):
    talk = one(producer).reply("4")
    assert [ask.name for ask in talk.round] == ["collect", "send"]
    assert talk.round[0].options["ids"] == ["a"]
    assert talk.reply(None, "1").result.new


def test_outcome_unknown_of_a_send_has_its_id(producer):
    for talk in (one(producer, id=None), one(producer).reply("4")):
        id = talk.round[-1].what[0].id
        with pytest.raises(OutcomeUnknown) as caught:
            talk.fail(OutcomeUnknown("silence"))
        assert caught.value.ids == (id,)


class Replying:
    """An executor whose Redis replies this to a single call, and notes the operations that it is given."""

    def __init__(self, reply):
        self.reply, self.operations = reply, []

    def call(self, request):
        if isinstance(self.reply, Exception):
            raise self.reply
        return SendStatuses.read(f"{self.reply}".encode())

    def perform(self, operation):
        self.operations.append(operation)
        return "performed"


def send_by(producer, executor, n=1):
    return producer.send_by(executor, [producer.outgoing(1, 0, None, f"m{at}", None) for at in range(n)])


def test_single_send_needs_no_operation(producer):
    executor = Replying(f"1 {NOW}")
    (sent,) = send_by(producer, executor)
    assert (sent.id, sent.status, executor.operations) == ("m0", SendStatus.NEW, [])
    assert sent.due == datetime.fromtimestamp(NOW // 1000 / 1000, UTC)
    (sent,) = send_by(producer, Replying(f"0 {NOW} ready -"))
    assert (sent.status, sent.due, sent.owner.state) == (SendStatus.EXISTS, None, "ready")
    (sent,) = send_by(producer, Replying(f"5 {NOW} settled -"))
    assert (sent.status, sent.owner.state) == (SendStatus.SETTLED, "settled")


def test_other_sends_are_operations(producer, context):
    for executor, n in ((Replying(f"4 {NOW}"), 1), (Replying(f"1 {NOW}"), 2)):
        assert send_by(producer, executor, n) == "performed"
        assert len(executor.operations) == 1
    context.confirming = [RedisCommand(("WAIT", 1, 100), bool)]
    executor = Replying(f"1 {NOW}")
    assert send_by(producer, executor) == "performed"
    assert len(executor.operations) == 1


@pytest.mark.parametrize("error", [OutcomeUnknown("silence"), QueueFullError("full")], ids=["unknown", "full"])
def test_error_of_a_single_send_has_its_id(producer, error):
    with pytest.raises(type(error)) as caught:
        send_by(producer, Replying(error))
    assert caught.value.ids == ("m0",)


def test_send_many_sends_all_batches_in_one_round_trip(producer):
    talk = many(producer, range(2 * BATCH + 1), delay="1h", retries=0)
    assert [len(send.what) for send in talk.round] == [BATCH, BATCH, 1]
    assert {(message.due, message.retries) for send in talk.round for message in send.what} == {(3_600_000, 0)}
    sent = talk.reply("1" * BATCH, "1" * BATCH, "0").result
    assert len(sent) == 2 * BATCH + 1
    assert len(sent.new) == 2 * BATCH


def test_large_payloads_make_small_batches(context):
    producer = Producer(context, BytesCodec())
    talk = many(producer, [b"x" * (BATCH_BYTES // 2)] * 5)
    assert [len(send.what) for send in talk.round] == [2, 2, 1]


def test_messages_with_their_own_options_keep_their_order(producer):
    at = datetime(2027, 1, 1, tzinfo=UTC)
    talk = many(
        producer, [1, NewMessage(2, delay=5, retries=9, id="b", headers={"c": "d"}, name="n"), NewMessage(3, at=at)]
    )
    plain, delayed, timed = talk.round[0].what
    assert (plain.due, plain.retries, plain.payload) == (0, 3, b"1")
    assert delayed == ("b", 5000, 9, b"2", b'{"c":"d"}', b"name=n")
    assert (timed.due, timed.retries) == (f"@{round(at.timestamp() * 1000)}", 3)


def test_send_many_checks_all_messages_before_it_sends_one(producer):
    messages = iter([*range(5 * BATCH), object()])
    with pytest.raises(PayloadError):
        many(producer, messages)
    assert next(messages, "all read") == "all read"


def test_spent_ids_of_send_many_are_collected_and_sent_again_in_order(producer):
    talk = many(producer, [NewMessage(n, id=f"m{n}") for n in range(6)], run="r").reply("141401")
    assert talk.round[0].options["ids"] == ["m1", "m3"]
    assert [message.id for message in talk.round[1].what] == ["m1", "m3"]
    assert talk.round[1].options["run"] == "r"
    sent = talk.reply(None, "12").result
    assert "".join(sent._statuses) == "111201"
    assert sent.new == ["m0", "m1", "m2", "m5"]


def test_every_call_of_a_run_has_its_name(producer):
    talk = many(producer, range(BATCH + 1), run="nightly:2027-01-01")
    assert [send.options["run"] for send in talk.round] == ["nightly:2027-01-01"] * 2


@pytest.mark.parametrize("run", ["", "a b", "x" * 129, "é", 5, b"r"])
def test_invalid_run_name_is_refused(producer, run):
    with pytest.raises(ConfigurationError, match="run must be 1 to 128 of"):
        many(producer, [1], run=run)


def test_outcome_unknown_of_send_many_has_the_uncertain_ids(producer):
    messages = [NewMessage(n, id=f"m{n}") for n in range(3)]
    talk = many(producer, messages)
    with pytest.raises(OutcomeUnknown) as caught:
        talk.fail(OutcomeUnknown("silence"))
    assert caught.value.ids == ("m0", "m1", "m2")
    talk = many(producer, messages).reply("141")
    with pytest.raises(OutcomeUnknown) as caught:
        talk.fail(OutcomeUnknown("silence"))
    assert caught.value.ids == ("m1",)


def test_another_error_passes_through(producer):
    with pytest.raises(QueueFullError):
        many(producer, [1]).fail(QueueFullError("full"))


def test_result_of_send_many_is_a_sequence():
    assert SentMany(["a"], "5", [0], [NOW])[0].status is SendStatus.SETTLED
    sent = SentMany(["a", "b", "c", "d"], "1023", [0] * 4, [NOW] * 4)
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


def test_due_time_is_either_a_delay_or_a_time():
    assert due_text("1s", None) == 1000
    assert due_text(None, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == "@1000"
    for both in ((None, None), (0, datetime.now(UTC))):
        with pytest.raises(ConfigurationError):
            due_text(*both)


# Cancelling, rescheduling and listing


@pytest.mark.parametrize(
    ("digit", "outcome"),
    [
        ("1", CancelOutcome.CANCELLED),
        ("3", CancelOutcome.DEAD),
        ("0", CancelOutcome.GONE),
    ],
)
def test_cancel_returns_one_of_four_outcomes(context, digit, outcome):
    assert Talk(cancel(context, "a")).reply(digit).result is outcome


def test_cancel_of_a_leased_message_depends_on_whether_it_has_started(context):
    assert Talk(cancel(context, "a")).reply("2").reply(STARTED).result is CancelOutcome.RUNNING
    assert Talk(cancel(context, "a")).reply("2").reply(RETURNED).reply("1").result is CancelOutcome.CANCELLED


@pytest.mark.parametrize(
    ("digit", "outcome"),
    [
        ("1", RescheduleOutcome.RESCHEDULED),
        ("3", RescheduleOutcome.DEAD),
        ("0", RescheduleOutcome.GONE),
    ],
)
def test_reschedule_returns_one_of_four_outcomes(context, digit, outcome):
    talk = Talk(reschedule(context, "a", "1s", None))
    assert talk.round[0].what == [("a", 1000)]
    assert talk.reply(digit).result is outcome


def test_reschedule_of_a_leased_message_depends_on_whether_it_has_started(context):
    for status, outcome in ((STARTED, RescheduleOutcome.RUNNING), (RETURNED, RescheduleOutcome.RESCHEDULED)):
        talk = Talk(reschedule(context, "a", "1s", None)).reply("2").reply(status)
        assert (talk if talk.ended else talk.reply("1")).result is outcome


def test_queue_names_are_read_completely_and_sorted():
    talk = Talk(queue_names("delayq"))
    assert isinstance(talk.round[0], RedisCommand)
    assert not isinstance(talk.round[0], ScriptCall)
    talk.reply([b"17", [b"b", b"a"]])
    assert "17" in [str(argument, "ascii") for argument in talk.round[0].args if isinstance(argument, bytes)]
    assert talk.reply([b"0", [b"a", b"c"]]).result == ["a", "b", "c"]


def test_what_is_no_name_in_the_registry_is_left_out_and_told_once(caplog, monkeypatch):
    monkeypatch.setattr("delayq.queue.control.registered._told", set())
    for _ in range(2):
        talk = Talk(queue_names("delayq"))
        assert talk.reply([b"0", [b"\xff", b"a", b"a b", b"", b"x" * 129, "ä".encode(), b"b"]]).result == ["a", "b"]
    (record,) = caplog.records
    assert record.getMessage() == r"delayq:queues has b'\xff', which is no name of a queue: left out; remove it by SREM"


@pytest.mark.parametrize("is_back", [False, True])
def test_queue_that_another_process_opens_while_it_is_removed_stays_listed(is_back):
    talk = Talk(remove(QueueContext(CALLS, read_settings({}), bytes, "q"), "delayq"))
    talk.reply(True, RemoveReply(0, 0, 0, 0, 0))
    assert [request.args for request in talk.round] == [("SREM", "delayq:queues", "q")]
    talk.reply(True)
    assert [request.args[0] for request in talk.round] == ["EXISTS"]
    talk.reply(is_back)
    if is_back:
        assert [request.args for request in talk.round] == [("SADD", "delayq:queues", "q")]
        talk.reply("")
    assert (talk.ended, talk.result) == (True, True)
