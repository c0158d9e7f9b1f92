"""What people read: tables of results, descriptions of models."""
