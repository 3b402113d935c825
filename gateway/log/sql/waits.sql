-- Whether a backend waits for a standby, its own work done. $1 its pid
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')
