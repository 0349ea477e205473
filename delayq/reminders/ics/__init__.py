"""Reading iCalendar files."""
