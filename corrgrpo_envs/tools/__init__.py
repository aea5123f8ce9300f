"""Tool-calling environments: blocks, call lines, matching of calls, scores, dialogues, prompts."""
