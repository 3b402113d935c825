"""Log lines, metrics and traces of a gateway.

`log_events` and `metrics` hold the two tables; docs/observability.md is made from them. Nothing here knows
the log, the catalog or `http`: those are handed what they need by the composition root.
"""
