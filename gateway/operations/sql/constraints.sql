-- The unique indexes that the log rests on, as tables and columns; those that are missing or not valid don't show.
SELECT c.relname || '(' || string_agg(a.attname, ', ' ORDER BY k.n) || ')' AS unique_on
FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_namespace s ON s.oid = c.relnamespace AND s.nspname = 'public'
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL
    AND c.relname IN ('outbox', 'append_identity', 'partition_log')
GROUP BY i.indexrelid, c.relname
