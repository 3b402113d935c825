-- Where each partition stands.
SELECT p, seq FROM partition_log
