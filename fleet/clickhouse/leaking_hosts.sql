-- Hosts with places that hold more and more memory. Known leaks do not count.
SELECT service, host, uniqExact(session) AS traces, count() AS sites, toInt64(sum(live_bytes)) AS leaked_bytes
FROM leaks
WHERE verdict = 'grows' AND suppressed IS NULL
GROUP BY service, host
ORDER BY leaked_bytes DESC, service, host;
