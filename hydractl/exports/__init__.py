"""A model in the formats of other runtimes, one file per format."""
