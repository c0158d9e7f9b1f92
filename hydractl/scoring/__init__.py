"""Head scores: how much a model needs each of its heads. Higher = keep, always."""
