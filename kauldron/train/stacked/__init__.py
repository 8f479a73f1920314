"""Many trainings in one compiled program."""
