"""Reactions: what follows from committed events later, each exactly once."""
