"""Tool-calling environments, RLLA and API-Bank: blocks, call lines, matching of calls, scores, dialogues, prompts."""
