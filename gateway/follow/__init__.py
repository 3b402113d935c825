"""Followers of a tenant's events: each writes its outputs and its position in one transaction."""
