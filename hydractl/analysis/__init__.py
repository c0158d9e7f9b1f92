"""The paper's analyses of pruned networks and of members: values in, values out."""
