-- What the traces with each label cost.
SELECT key, value, count(*) AS traces, CAST(coalesce(sum(peak_bytes), 0) AS BIGINT) AS peak_bytes,
    CAST(coalesce(sum(allocated_bytes), 0) AS BIGINT) AS allocated_bytes, CAST(coalesce(sum(leaked_bytes), 0) AS BIGINT) AS leaked_bytes
FROM labels JOIN sessions ON labels.session = sessions.session
GROUP BY key, value
ORDER BY peak_bytes DESC, key, value;
