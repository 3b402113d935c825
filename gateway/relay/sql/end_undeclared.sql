-- What a spec declared and declares no more. $1 tenant, $2 the names that it declares
DELETE FROM subscription WHERE tenant = $1 AND declared AND name <> ALL($2::text[])
