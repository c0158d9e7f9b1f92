"""Scores of how far from the training distribution an input looks: a file for each, or for a few that share their fit.

`table.OOD_SCORES` lists them; choices, file verification, exports and the manual follow from its rows. Rows are read
where torch is not loaded, so a function imports torch when it is called.
"""
