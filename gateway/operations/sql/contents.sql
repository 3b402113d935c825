-- What a gateway reads when it starts, and what waits for a person.
SELECT (SELECT partitions FROM instance) AS partitions,
    (SELECT count(*) FROM partition_log) AS partition_rows,
    (SELECT min(p) FROM partition_log) AS lowest, (SELECT max(p) FROM partition_log) AS highest,
    (SELECT count(*) FROM partition_log WHERE alarm IS NOT NULL) AS halted,
    ARRAY(SELECT p FROM partition_log WHERE mode = 'direct' ORDER BY p) AS direct,
    (SELECT count(*) FROM tenant) AS tenants,
    (SELECT count(*) FROM api_key WHERE revoked_at IS NULL) AS keys,
    (SELECT count(*) FROM spec_revision) AS specs,
    (SELECT revision FROM catalog_clock) AS clock
