"""Failures of the model's helpers show what was compared."""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.model.{name}" for name in ("laws", "machine", "model", "player", "scan", "traps")),
)
