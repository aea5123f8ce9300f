"""Bridges to other trainers."""
