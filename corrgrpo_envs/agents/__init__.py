"""Agents with tools, under attack: AgentDojo, ASB and InjecAgent, and what they share (call formats, prompts)."""
