"""The analyses of the paper: what pruning does to a network, measured; values in, values out."""
