"""Followers: what is kept in step with a tenant's events, its outputs and its position in one transaction."""
