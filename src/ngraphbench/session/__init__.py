"""Sessions: candidates measured side by side."""
