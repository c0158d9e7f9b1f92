"""What `build` decides: its plan, its time, its stages and its record."""
