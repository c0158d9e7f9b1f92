"""Parts that commands share: references to models, data that searches run on, results."""
