"""Circuits: rankings of heads by how well the model does without them."""
