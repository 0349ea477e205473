"""`delayq demo`: a year of public-holiday reminders of the whole world, delivered in half a minute, with a crash."""
