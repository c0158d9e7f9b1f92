"""Selection of the members that make the best Hydra together, from each one's own predictions."""
