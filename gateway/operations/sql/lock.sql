-- Whether this session may repair or rewind now; it ends with the session.
SELECT pg_try_advisory_lock(hashtextextended('sluice.repair', 0)) AS held
