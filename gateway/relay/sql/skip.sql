-- A parked event is passed over: what comes behind it in its aggregate goes on. $1 subscription, $2 event
UPDATE straggler SET state = 'retrying', version = version + 1, attempts = 0, due_at = now(), since = now()
WHERE subscription = $1 AND event = $2 AND state = 'parked'
