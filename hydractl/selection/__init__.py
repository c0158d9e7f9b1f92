"""Which members make the best Hydra together, told from what each predicts alone."""
