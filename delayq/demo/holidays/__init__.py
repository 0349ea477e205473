"""`delayq demo`: a year of public-holiday reminders of the whole world, delivered in half a minute, with a crash.

`holiday_reminders` plans what is sent; `demo_worker` delivers it, in processes that `started_workers` starts;
`holiday_demo` runs all of it, `demo_screen` shows it, and `balance` checks that everything sent is accounted for.
"""
