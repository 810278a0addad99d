-- A join of two tables in memory whose rows are looked up in no order: what `make demo`
-- records. The larger table takes some 18 MB, more than most TLBs reach.
CREATE TABLE customers(id INTEGER PRIMARY KEY, region INTEGER, name TEXT, file BLOB);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 24000)
INSERT INTO customers SELECT i, i % 50, printf('customer %d', i), zeroblob(640) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 36000)
INSERT INTO orders SELECT i, (i * 7919) % 24000, i % 997 FROM n;
SELECT region, count(*), sum(amount), max(name)
FROM orders JOIN customers ON customers.id = orders.customer
GROUP BY region ORDER BY 3 DESC LIMIT 5;
