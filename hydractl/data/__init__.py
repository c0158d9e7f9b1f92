"""Samples: where they come from, how they become a model's inputs, and in what order they are computed."""
