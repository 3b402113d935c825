-- Another document, and the cursor where it is to be; what was disabled works again. Whoever delivers finds out, and
-- hands over. $1 id, $2 kind, $3 declared, $4 document, $5 types, $6 event types, $7 seq, $8 mark
UPDATE subscription SET kind = $2, declared = $3, document = $4, types = $5, event_types = $6, seq = $7, mark = $8,
    moves = moves + 1, state = CASE state WHEN 'disabled' THEN 'active' ELSE state END, why = NULL,
    failing_since = NULL
WHERE id = $1
