"""Committed events on their way out: reading the outbox in the order of commits."""
