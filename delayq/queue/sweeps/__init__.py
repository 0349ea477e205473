"""What walks over a whole queue, in calls of limited size."""
