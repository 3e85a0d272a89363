-- Functions that allocate since version 1.5, and in no earlier version of the same service. A version is earlier if its first day is; of
-- versions with the same first day, if its name is smaller. The first 20. Replace 1.5 by the version that you ask about.
-- Files of sites are small for their rows, so Spark may try to send all sites to every worker. The hint says which side is small.
WITH versions AS (
    SELECT service, version, min(CAST(date AS DATE)) AS first_day FROM sessions GROUP BY service, version
),
limits AS (SELECT service, first_day, version FROM versions WHERE version = '1.5'),
ordered AS (
    SELECT versions.service AS service, versions.version AS version,
        CASE WHEN versions.first_day < limits.first_day
            OR (versions.first_day = limits.first_day AND versions.version < limits.version) THEN 1 ELSE 0 END AS is_earlier
    FROM versions JOIN limits ON versions.service = limits.service
)
SELECT /*+ BROADCAST(ordered) */ sites.service AS service, function, count(DISTINCT session) AS traces,
    CAST(coalesce(sum(peak_bytes), 0) AS BIGINT) AS peak_bytes, CAST(coalesce(sum(allocations), 0) AS BIGINT) AS allocations
FROM sites JOIN ordered ON sites.service = ordered.service AND sites.version = ordered.version
GROUP BY sites.service, function
HAVING max(is_earlier) = 0
ORDER BY peak_bytes DESC, allocations DESC, service, function
LIMIT 20;
