-- A mark for every partition; those that are there stay.
INSERT INTO storage_mark (p, seq) SELECT p, 0 FROM partition_log ON CONFLICT DO NOTHING
