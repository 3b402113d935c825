"""What is declared, kept in Postgres: tenants, their keys, their specs.

A gateway holds one `Catalog`; the commands use `tenants`, `keys`, `specs` and `migrate` directly.
"""
