"""Systems that answer: networks and ensembles, graphs of another runtime, saved predictions."""
