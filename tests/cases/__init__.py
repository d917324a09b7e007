"""Models that break benchmarking tools, made when a test needs them."""
