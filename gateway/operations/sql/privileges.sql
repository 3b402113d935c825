-- What a gateway needs and this role may not do. $1 tables, $2 columns ('' for the whole table), $3 privileges
SELECT w.tab, w.col, w.privilege
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w(tab, col, privilege, n)
WHERE NOT CASE w.col
    WHEN '' THEN has_table_privilege('public.' || w.tab, w.privilege)
    ELSE has_column_privilege('public.' || w.tab, w.col, w.privilege)
END
ORDER BY w.n
