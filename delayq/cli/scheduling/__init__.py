"""Commands about schedules and reminders."""
