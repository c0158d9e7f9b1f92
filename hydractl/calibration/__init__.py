"""Fits to the answers of a network: how sure they are, what tells OOD, what is promised."""
