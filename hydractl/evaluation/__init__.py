"""Evaluation: what a model gets right, how well it knows when it does not, and what it costs."""
