-- Functions whose bytes at the peak grew: the mean of a trace in the seven days up to the last day of the dataset, against the seven
-- days before. The first 20.
-- Files of sites are small for their rows, so Spark may try to send all sites to every worker. The hint says which side is small.
WITH last_day AS (SELECT max(CAST(date AS DATE)) AS day FROM sessions),
traces AS (
    SELECT service,
        CAST(coalesce(sum(CASE WHEN CAST(date AS DATE) < date_sub(last_day.day, 6) THEN 1 ELSE 0 END), 0) AS BIGINT) AS traces_before,
        CAST(coalesce(sum(CASE WHEN CAST(date AS DATE) >= date_sub(last_day.day, 6) THEN 1 ELSE 0 END), 0) AS BIGINT) AS traces_after
    FROM sessions CROSS JOIN last_day
    WHERE CAST(date AS DATE) >= date_sub(last_day.day, 13) AND CAST(date AS DATE) <= last_day.day
    GROUP BY service
),
bytes AS (
    SELECT /*+ BROADCAST(last_day) */ service, function,
        CAST(coalesce(sum(CASE WHEN CAST(date AS DATE) < date_sub(last_day.day, 6) THEN peak_bytes ELSE 0 END), 0) AS BIGINT) AS bytes_before,
        CAST(coalesce(sum(CASE WHEN CAST(date AS DATE) >= date_sub(last_day.day, 6) THEN peak_bytes ELSE 0 END), 0) AS BIGINT) AS bytes_after
    FROM sites CROSS JOIN last_day
    WHERE CAST(date AS DATE) >= date_sub(last_day.day, 13) AND CAST(date AS DATE) <= last_day.day
    GROUP BY service, function
)
SELECT bytes.service AS service, function, traces_before, traces_after, bytes_before, bytes_after,
    bytes_after div traces_after - bytes_before div traces_before AS growth_per_trace
FROM bytes JOIN traces ON bytes.service = traces.service
WHERE traces_before > 0 AND traces_after > 0 AND bytes_after div traces_after - bytes_before div traces_before > 0
ORDER BY growth_per_trace DESC, service, function
LIMIT 20;
