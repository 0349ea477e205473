"""Any file can be read: reading ends, and every problem is one line."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from delayq.reminders import Rules, plan
from tests.reminders.conftest import FILES, NOW, ics, read

WHOLE = [path.read_bytes() for path in sorted(FILES.glob("*.ics"))]
SCRAPS = st.sampled_from(
    [
        *(
            b"",
            b"\r\n",
            b" ",
            b"\x00",
            b"\xff",
            b"BEGIN:VEVENT\r\n",
            b"END:VEVENT\r\n",
            b"BEGIN:VCALENDAR\r\n",
            b";",
            b":",
        ),
        *(b"DTSTART:20270101T000000Z\r\n", b"RRULE:FREQ=DAILY\r\n", b"TRIGGER:\r\n", b"-", b"99999999", b"TZID=", b'"'),
        *(b"RECURRENCE-ID:20270101\r\n", b"EXDATE:\r\n", b"RDATE;VALUE=PERIOD:20270101T000000Z/PT1H\r\n", b"\\", b"="),
    ]
)


@st.composite
def corrupted(draw):
    """Draw a file in which parts are cut out, duplicated or replaced."""
    data = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(1, 6))):
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        data = data[:first] + draw(SCRAPS) + (data[last:] if draw(st.booleans()) else data[first:])
    return data


@settings(max_examples=150, deadline=None)
@given(st.one_of(corrupted(), st.binary(max_size=200)))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nBEGIN:VALARM\nACTION:DISPLAY\nEND:VALARM"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nBEGIN:VALARM\nTRIGGER:P99999999D\nEND:VALARM"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nBEGIN:VALARM\nTRIGGER:-P999999W\nEND:VALARM"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nRRULE:FREQ=DAILY;INTERVAL=99999999999999"))
@example(ics("UID:a\nDTSTART;VALUE=DATE:00010101\nRRULE:FREQ=DAILY"))
@example(ics("UID:a\nDTSTART;VALUE=DATE:99991231"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nDTSTART:20270116T090000Z"))
@example(ics("UID:a\nDTSTART;VALUE=PERIOD:20270115T090000Z/PT1H"))
@example(ics("UID:a\nDTSTART:P1D"))
@example(ics("UID:a\nUID:b\nDTSTART:20270115T090000Z"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nRDATE;VALUE=PERIOD:20270117T090000Z/PT1H"))
@example(ics("UID:a\nDTSTART:20270115T090000Z\nRECURRENCE-ID:20270115T090000Z\nRECURRENCE-ID:20270116T090000Z"))
def test_problems_of_any_file_are_one_line_each(data):
    reading = read(data, days=90, alarms=True)
    for problem in reading.problems:
        assert "\n" not in str(problem)
    plan(reading.events, Rules.of("team", "1d@09:00", quiet="22:00-07:00"), now=NOW)
