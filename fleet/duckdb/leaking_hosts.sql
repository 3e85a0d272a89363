-- Hosts with places that hold more and more memory. Known leaks do not count.
SELECT service, host, count(DISTINCT session) AS traces, count(*) AS sites, CAST(sum(live_bytes) AS BIGINT) AS leaked_bytes
FROM leaks
WHERE verdict = 'grows' AND suppressed IS NULL
GROUP BY service, host
ORDER BY leaked_bytes DESC, service, host;
