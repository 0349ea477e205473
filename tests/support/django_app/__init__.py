"""An app of Django whose tasks the tests run."""
