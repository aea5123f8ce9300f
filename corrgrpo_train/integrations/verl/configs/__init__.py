"""verl's settings that are not ours: `base` for every run, and one file for each task with its machine's."""
