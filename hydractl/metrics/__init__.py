"""Metrics: arrays in, numbers out; nothing here knows a model.

`prediction_table.tabulate` reduces member logits to the per-sample quantities that everything else works from.
"""
