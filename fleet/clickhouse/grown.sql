-- Functions whose bytes at the peak grew: the mean of a trace in the seven days up to the last day of the dataset, against the seven
-- days before. The first 20.
WITH last_day AS (SELECT max(date) AS day FROM sessions),
traces AS (
    SELECT service,
        toInt64(coalesce(sum(CASE WHEN date < last_day.day - 6 THEN 1 ELSE 0 END), 0)) AS traces_before,
        toInt64(coalesce(sum(CASE WHEN date >= last_day.day - 6 THEN 1 ELSE 0 END), 0)) AS traces_after
    FROM sessions CROSS JOIN last_day
    WHERE date >= last_day.day - 13 AND date <= last_day.day
    GROUP BY service
),
bytes AS (
    SELECT service, function,
        toInt64(coalesce(sum(CASE WHEN date < last_day.day - 6 THEN peak_bytes ELSE 0 END), 0)) AS bytes_before,
        toInt64(coalesce(sum(CASE WHEN date >= last_day.day - 6 THEN peak_bytes ELSE 0 END), 0)) AS bytes_after
    FROM sites CROSS JOIN last_day
    WHERE date >= last_day.day - 13 AND date <= last_day.day
    GROUP BY service, function
)
SELECT bytes.service AS service, function, traces_before, traces_after, bytes_before, bytes_after,
    intDiv(bytes_after, traces_after) - intDiv(bytes_before, traces_before) AS growth_per_trace
FROM bytes JOIN traces ON bytes.service = traces.service
WHERE traces_before > 0 AND traces_after > 0 AND intDiv(bytes_after, traces_after) - intDiv(bytes_before, traces_before) > 0
ORDER BY growth_per_trace DESC, service, function
LIMIT 20;
