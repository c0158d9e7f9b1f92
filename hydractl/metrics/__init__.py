"""Metrics: arrays in, numbers out; nothing here knows a model.

`prediction_table.tabulate` reduces member logits to the per-sample quantities everything else works from; chunks of any
size give the same table, so data of any length is evaluated in constant memory for its logits.
"""
