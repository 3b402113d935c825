-- Keeps an append that Postgres refused. $1 p, $2 epoch, $3 seq, $4 packed entry, $5 error
INSERT INTO quarantined_append (p, epoch, seq, entry, error) VALUES ($1, $2, $3, $4, $5)
