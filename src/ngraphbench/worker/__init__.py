"""The worker: one process that compiles and runs one program, and obeys the conductor."""
