"""The plan of a build: its stages, its time, its file and its record."""
