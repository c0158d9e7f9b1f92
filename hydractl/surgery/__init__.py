"""Surgery: heads are taken out of members, and members are fused into one network."""
