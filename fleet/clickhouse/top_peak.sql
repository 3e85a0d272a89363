-- The highest peak by service and version.
SELECT service, version, count() AS traces, toInt64(coalesce(max(peak_bytes), 0)) AS largest_peak_bytes, toInt64(coalesce(sum(peak_bytes), 0)) AS sum_of_peak_bytes
FROM sessions
GROUP BY service, version
ORDER BY largest_peak_bytes DESC, service, version;
