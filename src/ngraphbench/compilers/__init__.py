"""Graph compilers: one file each, found through entry points only."""
