"""Agents with tools, under attack: AgentDojo, and what agent environments share (call formats, metrics)."""
