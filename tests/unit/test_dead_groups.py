"""The shape of an error: what all errors of a kind have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.queue.dead_groups import shape_of


@pytest.mark.parametrize(
    ("texts", "shape"),
    [
        (["retries spent"], "retries spent"),
        (["ValueError: 42 is too large", "ValueError: -3.5 is too large"], "ValueError: # is too large"),
        (["KeyError: 'a'", "KeyError: 'b c'", "KeyError: ''"], "KeyError: '…'"),
        (['no user "x"', 'no user "y-1"'], 'no user "…"'),
        (["user-42 is gone", "user-a7f3 is gone"], "# is gone"),
        (["no 0b9c7f3e-2a61-4f0e-9d55-0c8d5a1b2c3d", "no 01HZX3V9Q2"], "no #"),
        (["a@example.org is unknown", "b.c+d@example.net is unknown"], "# is unknown"),
        (["can't open the user's file"], "can't open the user's file"),
        (["Error2: late at 2026-11-25T12:00:00.5Z", "Error2: late at 12:30"], "Error2: late at #"),
        (["app.errors.Http404: /users/1", "app.errors.Http404: /users/77"], "app.errors.Http404: /users/#"),
        (["one line\nand 2 more"], "one line"),
        (["", "  \n"], ""),
        (["x" * 300], "x" * 200),
        (["db-7.example.org:5432 is gone", "db-7.example.org:6432 is gone"], "db-7.example.org:# is gone"),
        (["no 'report-17.pdf' in s3.example.org", "no 'b2.pdf' in s3.example.org"], "no '…' in s3.example.org"),
        (["cannot read a-1.tar.gz", "cannot read b2.tar.gz"], "cannot read #"),
        (["no route to 10.0.0.7:80", "no route to 10.0.0.8"], "no route to #"),
        (["status 17 is unknown", "status 1017 is unknown", "status 404a is unknown"], "status # is unknown"),
        (
            [
                "E: error '500 No' for 'https://me@api.example.org/1'",
                "E: error '500 No' for 'https://api.example.org/2?a=b'",
            ],
            "E: error '500 No' for 'api.example.org…'",
        ),
        (
            ["E: 404 Client Error: No for url: https://a1.example.org/7"],
            "E: 404 Client Error: No for url: https://a1.example.org/#",
        ),
        (["ended with exit code 75"], "ended with exit code 75"),
    ],
)
def test_shape_leaves_out_what_varies(texts, shape):
    assert {shape_of(text) for text in texts} == {shape}


TEMPLATES = [
    "webhook {host} replied {status}",
    "HTTPStatusError: Server error '{status} No' for url 'https://{host}/users/{id}'",
    "HTTPError: {status} Client Error: No for url: https://{host}:8443/users/{id}",
    "urllib.error.HTTPError: HTTP Error {status}: {host} has no {id}",
    "ApiError: {host}:443 answered with status={status} to {id} at 12:00:01.5",
    "status code: {status} from {host}, request {id}, tried 3 times",
]
hosts = st.from_regex(r"[a-z]{1,8}[0-9]{0,3}(-[a-z0-9]{1,5})?\.([a-z0-9]{1,8}\.)?(com|org|internal)", fullmatch=True)
ids = st.from_regex(r"[a-z]{0,4}[0-9]{4,9}|[0-9A-F]{8}-[0-9a-f]{3}9", fullmatch=True)


@given(
    st.sampled_from(TEMPLATES),
    st.tuples(hosts, st.integers(400, 599)),
    st.tuples(hosts, st.integers(400, 599)),
    ids,
    ids,
)
def test_shape_depends_on_host_and_status_and_not_on_ids(template, one, other, id, another):
    def shape(of, id):
        return shape_of(template.format(host=of[0], status=of[1], id=id))

    assert shape(one, id) == shape(one, another)
    assert (shape(one, id) == shape(other, id)) == (one == other)


@pytest.mark.parametrize(
    "text",
    [
        "'" * 20_000,
        "a." * 20_000 + "!",
        "@" * 20_000,
        "1" * 20_000 + "@",
        "'x" * 20_000,
        "a1." * 9_000,
        "HTTP error '" * 2_000,
    ],
)
def test_shape_of_a_long_text_is_found_at_once(text):
    """The text is an error of the user's: no expression may take quadratic time on it."""
    assert len(shape_of(text)) <= 200
