-- The lowest and the highest partition that any row is in.
SELECT (SELECT min(p) FROM outbox) AS lowest, (SELECT max(p) FROM outbox) AS highest
