"""Texts for Slack, Mattermost and ntfy: a receiver that checks requests and replies as each service does."""

import json

import pytest

from delayq import ConfigurationError, RateLimited, Reject, Retry, StopWorker
from delayq.delivery import Webhook
from tests.support.deliveries import delivered
from tests.support.receivers import receiver, status

EVENT = {"summary": "Zahnarzt ☎", "user": {"name": "Anna"}}
CHATS = ["slack", "mattermost", "ntfy"]


@pytest.fixture
def hooks():
    with receiver(status(200, b"ok")) as made:
        yield made


@pytest.fixture
def chat(hooks):
    """`chat("slack", text=…)` makes a `Webhook` for that service that posts to the receiver."""
    made = []

    def make(service, **options) -> Webhook:
        made.append(Webhook(hooks.url, service=service, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def text_of(request):
    """Return the text as the service reads it."""
    if request.headers["content-type"] == "application/json":
        (item,) = json.loads(request.body).items()
        assert item[0] == "text"
        return item[1]
    assert request.headers["content-type"] == "text/plain; charset=utf-8"
    return request.body.decode()


@pytest.mark.parametrize("service", CHATS)
def test_text_is_made_from_the_template(hooks, chat, service):
    chat(service, text="{user.name}: {summary} at {due}", headers={"X-Title": "Reminder"})(delivered(EVENT))
    (request,) = hooks.requests
    assert text_of(request) == "Anna: Zahnarzt ☎ at 2027-01-31T09:00:00.000Z"
    assert request.headers["x-title"] == "Reminder"
    assert not [name for name in request.headers if name.startswith("webhook-")]


@pytest.mark.parametrize("service", CHATS)
def test_text_is_the_payload_by_default(hooks, chat, service):
    chat(service)(delivered(b"Zahnarzt", codec="bytes"))
    assert text_of(hooks.requests[0]) == "Zahnarzt"


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ("slack", '*a*: &lt;!channel&gt; @here &lt;https://x|y&gt; &amp; "\n'),
        ("mattermost", '*a*: <!channel> @\u200bhere <https://x|y> & "\n'),
        ("ntfy", '*a*: <!channel> @here <https://x|y> & "\n'),
    ],
)
def test_payload_mentions_nobody_and_breaks_no_json(hooks, chat, service, text):
    chat(service, text="*a*: {x}")(delivered({"x": '<!channel> @here <https://x|y> & "\n'}))
    assert text_of(hooks.requests[0]) == text


@pytest.mark.parametrize(("service", "length"), [("slack", 40_000), ("mattermost", 16_383), ("ntfy", 4_095 // 3)])
def test_long_text_is_cut(hooks, chat, service, length):
    chat(service, text="{x}")(delivered({"x": "☎" * 50_000}))
    assert text_of(hooks.requests[0]) == "☎" * length


@pytest.mark.parametrize("service", CHATS)
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        *((code, Retry) for code in (408, 500, 502, 507)),
        *((code, RateLimited) for code in (429, 503)),
        *((code, Reject) for code in (400, 413, 422)),
        *((code, StopWorker) for code in (401, 403, 404, 410)),
    ],
)
def test_reply_decides_the_outcome(hooks, chat, service, code, outcome):
    hooks.replies = [status(code, b"invalid_token")]
    with pytest.raises(outcome, match=f"^webhook 127.0.0.1 replied {code}") as raised:
        chat(service)(delivered(EVENT))
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("service", CHATS)
def test_retry_after_is_respected(hooks, chat, service):
    hooks.replies = [status(429, Retry_After="30")]
    with pytest.raises(RateLimited, match="replied 429") as raised:
        chat(service)(delivered(EVENT))
    assert raised.value.delay == pytest.approx(30, abs=1)


def test_url_of_the_payload_that_does_not_exist_rejects_only_this_message(hooks):
    hooks.replies = [status(404)]
    hook = Webhook(f"http://127.0.0.1:{hooks.port}/{{topic}}", service="ntfy", text="{topic}")
    with pytest.raises(Reject, match="replied 404"):
        hook(delivered({"topic": "a"}))
    assert hooks.requests[0].path == "/a"
    hook.close()


def test_missing_field_rejects(hooks, chat):
    with pytest.raises(Reject, match="the payload has no field 'nothing'"):
        chat("slack", text="{nothing}")(delivered(EVENT))
    assert not hooks.requests


def test_secret_in_the_environment_signs_no_text(hooks, chat, monkeypatch):
    monkeypatch.setenv("DELAYQ_WEBHOOK_SECRET", "MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY=")
    chat("slack")(delivered(EVENT))
    assert "webhook-signature" not in hooks.requests[0].headers


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"service": "pager"}, "service must be one of slack, mattermost, ntfy, not 'pager'"),
        ({"text": "x"}, "text needs a service"),
        ({"service": "slack", "text": "{a!r}"}, "text takes fields"),
        ({"service": "slack", "secret": "x"}, "are not signed: leave out the secret"),
    ],
)
def test_invalid_options_are_refused_on_creation(options, error):
    with pytest.raises(ConfigurationError, match=error):
        Webhook("https://example.com/", **options)
