-- What the tables of a tenant hold, in a line: equal lines mean equal tables. $1 tenant
SELECT (SELECT count(*) FROM alias WHERE tenant = $1) AS names,
    (SELECT md5(string_agg(md5(a::text), '' ORDER BY a.path, a.body, a.prefix)) FROM alias a WHERE a.tenant = $1)
        AS aliases,
    (SELECT md5(string_agg(md5(c::text), '' ORDER BY c.prefix)) FROM alias_counter c WHERE c.tenant = $1) AS counters,
    (SELECT version FROM alias_position WHERE tenant = $1) AS version
