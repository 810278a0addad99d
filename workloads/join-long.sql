-- Two tables of 200,000 rows in memory, an index, and a join through it: half a second, what the
-- cost of recording is told of.
CREATE TABLE a(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
CREATE TABLE b(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO a SELECT i, (i * 7919) % 200000, printf('a%d', i) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO b SELECT i, (i * 104729) % 200000, printf('b%d', i) FROM n;
CREATE INDEX bk ON b(k);
SELECT count(*), sum(length(a.v) + length(b.v)) FROM a JOIN b ON a.k = b.k;
