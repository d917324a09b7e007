"""The environments that workers run in, and what is known of the host."""
