"""The proof: a workload under faults, the history its processes write, and the checker that reads it.

`plan` and `workload` say what a round is, drawn from a seed; `round` does it with a `crew` of processes (`producer`,
`worker`, `inspector`) at a `place`, `faults` breaks things, and `scan` looks at what is left. `history` is what is
written, through `recorded` calls; `stories` puts it together, and `checker` judges it by `rules` and `whole`. What an
`engine` is to all this, `delay`, `streams` and `workqueue` say each for its own, and `promises` by what it is judged.
Started by `delayq torture`.
"""
