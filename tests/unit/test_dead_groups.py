"""The shape of an error: what all errors of a kind have in common."""

import pytest

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
    ],
)
def test_shape_leaves_out_what_varies(texts, shape):
    assert {shape_of(text) for text in texts} == {shape}


@pytest.mark.parametrize("text", ["'" * 20_000, "a." * 20_000 + "!", "@" * 20_000, "1" * 20_000 + "@", "'x" * 20_000])
def test_shape_of_a_long_text_is_found_at_once(text):
    """The text is an error of the user's: no expression may take quadratic time on it."""
    assert len(shape_of(text)) <= 200
