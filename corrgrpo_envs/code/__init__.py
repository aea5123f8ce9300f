"""Programming tasks: prompts, extraction of code from answers, judging, similarity, efficiency."""
