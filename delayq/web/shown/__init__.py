"""What pages show: times, charts, labels and forms, and the templates that put them together."""
