"""What answers: networks and ensembles, graphs of another runtime, saved predictions."""
