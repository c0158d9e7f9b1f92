"""Fine-tuning: recipes as data, and one plain loop."""
