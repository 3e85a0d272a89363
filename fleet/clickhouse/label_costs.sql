-- What the traces with each label cost.
SELECT key, value, count() AS traces, toInt64(coalesce(sum(peak_bytes), 0)) AS peak_bytes,
    toInt64(coalesce(sum(allocated_bytes), 0)) AS allocated_bytes, toInt64(coalesce(sum(leaked_bytes), 0)) AS leaked_bytes
FROM labels JOIN sessions ON labels.session = sessions.session
GROUP BY key, value
ORDER BY peak_bytes DESC, key, value;
