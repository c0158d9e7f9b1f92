"""Surgery: takes heads out of members, and fuses members into one network."""
