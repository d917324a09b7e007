"""Models: where they come from, their inputs, and the workload folder made of them."""
