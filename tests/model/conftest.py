"""Failures of the model's helpers show what was compared."""

import pytest

pytest.register_assert_rewrite(
    "tests.model.laws", "tests.model.machine", "tests.model.model", "tests.model.player", "tests.model.scan"
)
