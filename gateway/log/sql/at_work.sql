-- Which of these backends of this role still work on a statement. $1 pids
SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND application_name = 'sluice' AND state = 'active'
