"""Templates: fields by name only."""

import pytest

from delayq import ConfigurationError, Reject
from delayq.delivery.envelope import Template

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
def test_fields_are_replaced(text, filled):
    assert Template(text, "subject").fill(FIELDS) == filled


def test_payload_values_are_not_templates():
    assert (
        Template("{summary}", "subject").fill({"summary": "{user.name} {0.__class__}"}) == "{user.name} {0.__class__}"
    )


@pytest.mark.parametrize("text", ["{missing}", "{user.missing}", "{summary.upper}", "{l.0}", "{user.__class__}", "{0}"])
def test_missing_field_rejects(text):
    with pytest.raises(Reject, match=f"the payload has no field '{text[1:-1]}'"):
        Template(text, "subject").fill(FIELDS)


@pytest.mark.table(
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
def test_template_allows_only_plain_fields(text):
    with pytest.raises(ConfigurationError, match="subject"):
        Template(text, "subject")
