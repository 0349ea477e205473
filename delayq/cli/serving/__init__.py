"""Commands that serve pages, or tell people."""
