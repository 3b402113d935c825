-- The partitions of which rows are not counted yet. It locks nothing: where nothing is appended, nothing is written.
SELECT p FROM storage_mark mark JOIN partition_log log USING (p) WHERE log.seq > mark.seq ORDER BY p
