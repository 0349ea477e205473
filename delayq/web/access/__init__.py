"""Who may see and do what on the dashboard."""
