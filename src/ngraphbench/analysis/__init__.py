"""Analyses: pure functions of records and samples."""
