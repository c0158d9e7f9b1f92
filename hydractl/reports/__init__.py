"""Tables, figures and pages for people: results of evaluations, models and artifacts."""
