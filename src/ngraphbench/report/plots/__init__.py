"""One module per idea of a chart; each has a function that returns it, or None without data."""
