"""Templates: fields by name, and nothing else that a payload or a template could ask for."""

import pytest

from delayq import ConfigurationError, Reject
from delayq.deliver.template import Template

FIELDS = {"summary": "Zahnarzt", "n": 7, "f": 1.5, "yes": True, "none": None, "user": {"name": "Anna"}, "l": [1, "a"]}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("", ""),
        ("plain", "plain"),
        ("{summary}", "Zahnarzt"),
        ("{n}, {f}, {yes}, {none}.", "7, 1.5, true, ."),
        ("Hello {user.name}!", "Hello Anna!"),
        ("{user} {l}", '{"name":"Anna"} [1,"a"]'),
        ("{{summary}} {{{summary}}}", "{summary} {Zahnarzt}"),
    ],
)
def test_fields_are_filled_in(text, filled):
    assert Template(text, "subject").fill(FIELDS) == filled


def test_what_a_payload_says_is_no_template():
    assert (
        Template("{summary}", "subject").fill({"summary": "{user.name} {0.__class__}"}) == "{user.name} {0.__class__}"
    )


@pytest.mark.parametrize("text", ["{missing}", "{user.missing}", "{summary.upper}", "{l.0}", "{user.__class__}", "{0}"])
def test_a_field_that_is_not_there_is_a_reason_to_reject(text):
    with pytest.raises(Reject, match=f"the payload has no field '{text[1:-1]}'"):
        Template(text, "subject").fill(FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "}",
        "{}",
        "{n!r}",
        "{n:>10}",
        "{n:{f}}",
        "{l[0]}",
        "{user[name]}",
        "{a b}",
        "{.a}",
        "{a.}",
        "{a..b}",
        7,
        None,
    ],
)
def test_a_template_asks_for_fields_only(text):
    with pytest.raises(ConfigurationError, match="subject"):
        Template(text, "subject")
