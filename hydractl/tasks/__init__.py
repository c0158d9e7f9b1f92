"""Tasks: what a network answers, how it is trained for that, and what its answers show."""
