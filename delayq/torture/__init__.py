"""The proof: a workload under faults, the history its processes write, and the checker that reads it.

`history` is what is written, `checker` what must be true of it. Started by `delayq torture`.
"""
