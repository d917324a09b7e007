"""Engines: how a session reaches its device."""
