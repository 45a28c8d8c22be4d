-- A speed test over sqlite3's shell: inserts, indexes, joins, groups, updates, text.
.mode list
CREATE TABLE numbers(a INTEGER, b INTEGER, c TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO numbers SELECT i, (i * 7919) % 100003, printf('%08x near the page %d', (i * 48271) % 2147483647, i % 97) FROM n;
COMMIT;
CREATE INDEX by_b ON numbers(b);
CREATE INDEX by_c ON numbers(c);
SELECT count(*), sum(b), sum(length(c)) FROM numbers;
SELECT b % 13, count(*), group_concat(a % 10, '') FROM numbers WHERE b < 4000 GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM numbers x JOIN numbers y ON x.b = y.a WHERE x.a % 3 = 0;
BEGIN;
UPDATE numbers SET c = c || ' again' WHERE a % 5 = 0;
DELETE FROM numbers WHERE b % 11 = 0;
COMMIT;
SELECT count(*), min(c), max(c) FROM numbers;
SELECT c FROM numbers ORDER BY substr(c, 5), a LIMIT 5;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
SELECT sum(length(upper(hex(i) || replace(printf('%d-%d', i, i * i), '-', '+')))) FROM n;
PRAGMA integrity_check;
