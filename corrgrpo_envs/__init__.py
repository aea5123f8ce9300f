"""Gymnasium environments for language models that return named reward components with weights."""
