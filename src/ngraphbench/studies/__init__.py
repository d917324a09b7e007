"""Studies: a template that makes an experiment, and an analysis that ends in a decision."""
