-- The highest peak by service and version.
SELECT service, version, count(*) AS traces, CAST(coalesce(max(peak_bytes), 0) AS BIGINT) AS largest_peak_bytes, CAST(coalesce(sum(peak_bytes), 0) AS BIGINT) AS sum_of_peak_bytes
FROM sessions
GROUP BY service, version
ORDER BY largest_peak_bytes DESC, service, version;
