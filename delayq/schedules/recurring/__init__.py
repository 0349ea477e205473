"""Rules of recurrence: their parts, and the local times that they give."""
