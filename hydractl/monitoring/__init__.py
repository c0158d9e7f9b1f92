"""A stream of answers in, evidence of change out: arrays and plain values, without torch."""
