"""How images are made worse: a function for each kind, in the file of its group, and one row for each in `kinds`."""
