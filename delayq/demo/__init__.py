"""The demo: a year of public-holiday reminders of the whole world, delivered in half a minute, with a crash.

`reminders` knows what is sent, `worker` how it is delivered, `crew` by whom, `server` on which Redis, `account`
whether it adds up; `screen` shows it and `run` does it. Started by `delayq demo`.
"""
