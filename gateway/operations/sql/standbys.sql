-- Standbys that are connected. A role without pg_monitor sees rows whose state is empty.
SELECT count(*) AS connected, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
    bool_and(sync_state IS NOT NULL) IS NOT FALSE AS visible
FROM pg_stat_replication
