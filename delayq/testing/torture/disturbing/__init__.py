"""What disturbs a run: faults, proxies, killed processes."""
