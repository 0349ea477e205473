"""The pipelines: plan, load, archive and audit."""
