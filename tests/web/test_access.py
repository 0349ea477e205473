"""Who may look at the dashboard: hosts, tokens, viewers and their queues, proxies, and headers of every reply."""

from __future__ import annotations

import pytest

from delayq import ConfigurationError, DelayQueue
from delayq.web import Viewer, web_app
from delayq.web.access import FORGET_AFTER, FREE, MAX_ADDRESSES, FailedLogins
from delayq.web.protection import HEADERS
from delayq.web.viewers import read_viewers
from tests.support.visitor import Visitor, text_of

TOKEN = "a-token-of-24-characters"


def log_in(visitor, token=TOKEN, **fields):
    return visitor.post("/login", {"form_token": visitor.form_token(), "token": token, **fields})


def test_every_reply_has_the_headers(queue, visit):
    queue.send_delay_msg(1, "1h")
    visitor = visit()
    for path in ("/", "/queue?queue=orders", "/nothing", "/static/dashboard.css"):
        reply = visitor.get(path)
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS, path
    assert visitor.get("/").headers["Cache-Control"] == "no-store"
    static = visitor.get("/static/dashboard.css")
    assert static.headers["Cache-Control"] == "no-cache"
    again = visitor.get("/static/dashboard.css", headers={"If-None-Match": static.headers["ETag"]})
    assert again.status_code == 304
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    cookie = visitor.get("/").headers.get("Set-Cookie", "") or visit().get("/").headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "["]
)
def test_rebinding_is_refused(visit, host):
    """A website that has its name point here is asked for by that name."""
    visitor = visit()
    assert visitor.get("/", headers={"Host": host}).status_code == 421
    assert visitor.get("/static/dashboard.css", headers={"Host": host}).status_code == 421


def test_hosts_that_are_served(visit):
    for host in ("localhost", "localhost:9130", "127.0.0.1:9130", "[::1]:9130"):
        assert visit().get("/", headers={"Host": host}).status_code == 200, host
    named = visit(token=TOKEN, hosts=["queues.example"])
    assert named.get("/login", headers={"Host": "queues.example:80"}).status_code == 200
    assert visit(token=TOKEN).get("/login", headers={"Host": "10.0.0.1:9130"}).status_code == 200


def test_without_a_token_only_this_machine_may_look(visit):
    assert visit(client="10.0.0.7").get("/").status_code == 403
    assert visit(client="::1").get("/").status_code == 200
    for header in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"):
        assert visit().get("/", headers={header: "10.0.0.7"}).status_code == 403, header


def test_login(queue, visit):
    queue.send_delay_msg(1, "1h")
    visitor = visit(token=TOKEN, client="10.0.0.7")
    sent_away = visitor.get("/queue?queue=orders")
    assert (sent_away.status_code, sent_away.headers["Location"]) == (303, "/login?next=%2Fqueue%3Fqueue%3Dorders")
    assert visitor.get("/live?view=queues").status_code == 401
    assert visitor.get("/static/dashboard.css").status_code == 200
    wrong = log_in(visitor, token=TOKEN[:-1])
    assert wrong.status_code == 403
    assert "This token is not known" in text_of(wrong)
    right = log_in(visitor, next="/queue?queue=orders")
    assert (right.status_code, right.headers["Location"]) == (303, "/queue?queue=orders")
    assert "HttpOnly" in right.headers["Set-Cookie"]
    assert TOKEN not in right.headers["Set-Cookie"]
    assert "1 pending" in text_of(visitor.get("/queue?queue=orders"))
    assert visitor.post("/logout", {"form_token": visitor.form_token("/")}).status_code == 303
    assert visitor.get("/").status_code == 303


def test_logging_out_ends_this_session_alone_and_on_the_server(visit):
    visitor, cookies = visit(token=TOKEN), []
    for _ in range(2):
        visitor.cookies.clear()
        log_in(visitor)
        cookies += [f"delayq-web={cookie.value}" for cookie in visitor.cookies.jar]
    visitor.post("/logout", {"form_token": visitor.form_token("/")})
    visitor.post("/logout", {"form_token": visitor.form_token("/login")})
    visitor.cookies.clear()
    assert [visitor.get("/", headers={"Cookie": cookie}).status_code for cookie in cookies] == [200, 303]
    assert len(visitor.app.state.site.access._ended) == 1
    for last in "AEIMQUYcgkosw048BFJNRVZdhlptx159":  # of the last letter some bits count for nothing
        assert visitor.get("/", headers={"Cookie": f"{cookies[1][:-1]}{last}"}).status_code == 303, last


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/\r\nX: y"])
def test_login_leads_nowhere_else(visit, target):
    assert log_in(visit(token=TOKEN), next=target).headers["Location"] == "/"


def test_session_that_was_changed_or_is_over_is_none(visit, monkeypatch):
    visitor = visit(token=TOKEN)
    log_in(visitor)
    other = visit(token=TOKEN)
    (session,) = [cookie.value for cookie in visitor.cookies.jar]
    for cookie in (session[:-1], session[1:], "", "x", "a.b.c.d", session.replace(".", "", 1)):
        other.cookies.clear()
        assert other.get("/", headers={"Cookie": f"delayq-web={cookie}"}).status_code == 303, cookie
    assert visitor.get("/").status_code == 200
    monkeypatch.setattr("delayq.web.access.time.time", lambda: 2**33)
    assert visitor.get("/").status_code == 303


def test_session_outlives_a_restart_and_ends_with_its_token(visit):
    visitor, same, other = visit(token=TOKEN), visit(token=TOKEN), visit(token=TOKEN + "!")
    log_in(visitor)
    same.cookies = other.cookies = visitor.cookies
    assert [one.get("/").status_code for one in (same, other)] == [200, 303]


def test_form_without_its_token_or_from_elsewhere_is_refused(visit):
    visitor = visit(token=TOKEN)
    token = visitor.form_token()
    assert visitor.post("/login", {"token": TOKEN}).status_code == 403
    assert visitor.post("/login", {"token": TOKEN, "form_token": "0" * 64}).status_code == 403
    for origin in ("http://evil.example", "null", "http://localhost:1", "x", "http://["):
        assert visitor.post("/login", {"token": TOKEN, "form_token": token}, origin=origin).status_code == 403, origin
    bare = visitor.post("/login", {"token": TOKEN, "form_token": token}, origin="")
    assert (bare.status_code, bare.text) == (
        403,
        "the request lacks the header Origin, which browsers send: Origin: http://localhost\n",
    )
    cross = visitor.post("/login", {}, origin="", **{"Sec-Fetch-Site": "cross-site"})
    assert (cross.status_code, cross.text) == (403, "the request is from another website\n")
    site = {"Sec-Fetch-Site": "same-origin"}
    assert visitor.post("/login", {"token": TOKEN, "form_token": token}, origin="", **site).status_code == 303


def test_form_that_is_too_long_is_not_read(visit):
    visitor = visit(token=TOKEN)

    async def endless():
        yield b"token="
        raise AssertionError("read")

    headers = {"Origin": "http://localhost", "Content-Type": "application/x-www-form-urlencoded"}
    assert visitor.request("POST", "/login", content=endless(), headers=headers).status_code == 413
    assert visitor.post("/login", {"token": "x" * 70_000}).status_code == 413


def test_viewer_sees_its_queues_alone(full, redis_url, visit):
    with DelayQueue("mails-1", url=redis_url) as mails:
        mails.send_delay_msg(1, "1h", id="m")
    visitor = visit(viewers=[Viewer("ada", ["mails-*"], token=TOKEN), Viewer("bob", token=TOKEN + "2")])
    log_in(visitor)
    assert "mails-1" in text_of(visitor.get("/"))
    assert "orders" not in visitor.get("/").text
    assert "ada" in text_of(visitor.get("/"))
    for path in (
        "/queue?queue=orders",
        "/messages?queue=orders",
        "/message?queue=orders&id=waits",
        "/dead?queue=orders",
    ):
        assert visitor.get(path).status_code == 404, path
    assert visitor.get("/message?queue=mails-1&id=m").status_code == 200
    assert "mails-1" not in visit(queues=["orders"]).get("/").text


def test_proxy_names_the_viewer(queue, visit):
    queue.send_delay_msg(1, "1h")
    visitor = visit(proxy_header="X-Forwarded-User", hosts=["queues.example"], client="10.0.0.7")
    assert visitor.get("/").status_code == 403
    assert "ada" in text_of(visitor.get("/", headers={"X-Forwarded-User": "ada"}))
    listed = visit(proxy_header="X-Forwarded-User", viewers=[Viewer("ada", ["mails"])])
    assert "orders" not in listed.get("/", headers={"X-Forwarded-User": "ada"}).text
    assert listed.get("/", headers={"X-Forwarded-User": "bob"}).status_code == 403
    sent_by_both = [("X-Forwarded-User", "ada"), ("X-Forwarded-User", "bob")]
    assert visitor.get("/", headers=sent_by_both).status_code == 403


def test_program_names_the_viewer(visit):
    visitor = visit(viewer_of=lambda request: request.headers.get("x-user"), hosts=["*"], base="http://any.example")
    assert visitor.get("/").status_code == 403
    assert visitor.get("/", headers={"X-User": "ada"}).status_code == 200


def test_viewers_from_a_file():
    ada, bob = read_viewers(f'[ada]\ntoken = "{TOKEN}"\nqueues = ["a", "b-*"]\nwrite = false\n\n[bob]\n')
    assert (ada.name, [*ada.queues], ada.write, bob.write) == ("ada", ["a", "b-*"], False, True)
    assert (ada.sees("b-1"), ada.sees("c"), bob.sees("c")) == (True, False, True)
    assert TOKEN not in repr(ada)


@pytest.mark.table(
    "text, problem",
    [
        ("ada = 1", r"must have a table for 'ada'"),
        ("[ada", "is no TOML"),
        ("# [ada]", "names nobody"),
        ('[ada]\ntoken = "short"', "at least 16"),
        ("[ada]\ntokne = 1", "did you mean 'token'"),
        ('[ada]\nqueues = "a"', "list of patterns"),
        ('[ada]\nqueues = ["a b"]', "pattern"),
        ("[ada]\nwrite = 1", "write"),
        ('["a\\nb"]', "line of text"),
    ],
)
def test_file_of_viewers_that_is_wrong(text, problem):
    with pytest.raises(ConfigurationError, match=problem):
        read_viewers(text)


@pytest.mark.table(
    "options, problem",
    [
        ({"token": "short"}, "at least 16"),
        ({"token": TOKEN, "proxy_header": "X-User"}, "choose one"),
        ({"viewers": [Viewer("ada")]}, "need tokens"),
        ({"viewers": [], "proxy_header": "X-User"}, "name somebody"),
        ({"hosts": ["queues.example"]}, "other than localhost"),
        ({"hosts": ["*"]}, "other than localhost"),
        ({"viewers": [Viewer("ada", token=TOKEN), Viewer("bob", token=TOKEN)]}, "of its own"),
        ({"hosts": "example"}, "list of names"),
        ({"write": "yes"}, "write"),
        ({"queues": ["a b"]}, "pattern"),
    ],
)
def test_app_that_is_wrong(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        web_app(**options)


# Slow logins


@pytest.fixture
def now(monkeypatch):
    """The time of the machine in a list, for a dashboard that is made from then on."""
    at = [1000.0]
    monkeypatch.setattr("delayq.web.site.FailedLogins", lambda: FailedLogins(lambda: at[0]))
    return at


def test_wrong_tokens_make_their_address_wait_and_no_other(visit, now):
    guesser = visit(token=TOKEN, client="198.51.100.7", hosts=["localhost"])
    other = Visitor(guesser.app, client="198.51.100.8")
    for _ in range(FREE):
        assert log_in(guesser, "x" * 16).status_code == 403
    waits = []
    for _ in range(9):
        slowed = log_in(guesser, TOKEN)
        assert slowed.status_code == 429
        waits.append(int(slowed.headers["Retry-After"]))
        assert f"try again in {waits[-1]} second" in text_of(slowed)
        now[0] += waits[-1]
        assert log_in(guesser, "x" * 16).status_code == 403
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert log_in(other, TOKEN).status_code == 303
    now[0] += 60
    assert log_in(guesser, TOKEN).status_code == 303
    assert log_in(guesser, "x" * 16).status_code == 403  # a login begins anew
    assert log_in(guesser, TOKEN).status_code == 303


def test_wrong_tokens_are_forgotten_and_bounded():
    now = 0.0
    logins = FailedLogins(lambda: now)
    for _ in range(FREE):
        logins.add("198.51.100.7")
    assert logins.wait("198.51.100.7") == logins.wait("::ffff:198.51.100.7") == 1
    now += FORGET_AFTER
    assert logins.wait("198.51.100.7") == 0
    logins.add("198.51.100.7")
    assert logins.wait("198.51.100.7") == 0
    for n in range(FREE):
        logins.add(f"2001:db8:0:1::{n}")
    assert (logins.wait("2001:db8:0:1:ffff::"), logins.wait("2001:db8:0:2::")) == (1, 0)
    for n in range(MAX_ADDRESSES):
        logins.add(f"unix {n}")
    assert len(logins._failures) == MAX_ADDRESSES
    assert logins.wait("2001:db8:0:1::") == 0  # the oldest
