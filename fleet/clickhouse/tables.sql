-- Tables for a ClickHouse server. Load a dataset once with load.sql, and then each new batch. Rows of replaced batches are removed by the
-- last statement of load.sql, so the questions of this folder need no view there.
CREATE TABLE IF NOT EXISTS sessions (
    batch Int64,
    session Int64,
    version LowCardinality(String),
    trace String,
    file String,
    program LowCardinality(String),
    command String,
    tool String,
    pid Int64,
    started Nullable(DateTime64(6, 'UTC')),
    runtime_us Nullable(Int64),
    attached Bool,
    complete Bool,
    heap_profile Bool,
    allocations Nullable(Int64),
    allocated_bytes Nullable(Int64),
    deallocations Nullable(Int64),
    temporary Nullable(Int64),
    leaked_bytes Nullable(Int64),
    leaked_allocations Nullable(Int64),
    suppressed_bytes Nullable(Int64),
    peak_bytes Nullable(Int64),
    peak_allocations Nullable(Int64),
    peak_time_us Nullable(Int64),
    peak_rss_bytes Nullable(Int64),
    lost_events Nullable(Int64),
    sampling_rate_bytes Nullable(Int64),
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, version, session);
CREATE TABLE IF NOT EXISTS labels (
    batch Int64,
    session Int64,
    key LowCardinality(String),
    value String,
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, key, value, session);
CREATE TABLE IF NOT EXISTS sites (
    batch Int64,
    session Int64,
    version LowCardinality(String),
    function LowCardinality(String),
    file Nullable(String),
    line Nullable(Int64),
    module Nullable(String),
    stack Int64,
    allocations Nullable(Int64),
    allocated_bytes Nullable(Int64),
    deallocations Nullable(Int64),
    temporary Nullable(Int64),
    leaked_bytes Nullable(Int64),
    leaked_allocations Nullable(Int64),
    suppressed_bytes Nullable(Int64),
    suppressed_allocations Nullable(Int64),
    peak_bytes Nullable(Int64),
    peak_allocations Nullable(Int64),
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, function, version, session, stack);
CREATE TABLE IF NOT EXISTS buckets (
    batch Int64,
    session Int64,
    bucket Int64,
    end_us Int64,
    live_bytes Int64,
    live_allocations Int64,
    live_bytes_end Int64,
    allocations Int64,
    allocated_bytes Int64,
    deallocations Int64,
    temporary Int64,
    rss_bytes Nullable(Int64),
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, session, bucket);
CREATE TABLE IF NOT EXISTS leaks (
    batch Int64,
    session Int64,
    version LowCardinality(String),
    verdict LowCardinality(String),
    function LowCardinality(String),
    file Nullable(String),
    module Nullable(String),
    stack Int64,
    live_bytes Int64,
    live_allocations Int64,
    allocations Int64,
    growth_bytes_per_second Int64,
    reason String,
    suppressed Nullable(String),
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, verdict, function, session);
CREATE TABLE IF NOT EXISTS memory (
    batch Int64,
    session Int64,
    instant String,
    time_us Int64,
    kind LowCardinality(String),
    name String,
    rss_bytes Int64,
    pss_bytes Int64,
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, kind, session, instant);
CREATE TABLE IF NOT EXISTS processes (
    batch Int64,
    session Int64,
    process Int64,
    pid Int64,
    parent Nullable(Int64),
    name String,
    command String,
    start Nullable(String),
    start_us Int64,
    end_us Nullable(Int64),
    exit Nullable(String),
    allocations Nullable(Int64),
    allocated_bytes Nullable(Int64),
    leaked_bytes Nullable(Int64),
    peak_bytes Nullable(Int64),
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, session, process);
CREATE TABLE IF NOT EXISTS events (
    batch Int64,
    session Int64,
    time_us Int64,
    event LowCardinality(String),
    block Int64,
    stack Int64,
    size Int64,
    thread Int64,
    allocated_us Int64,
    service LowCardinality(String),
    date Date,
    host LowCardinality(String)
) ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (service, date, session);
CREATE TABLE IF NOT EXISTS stacks (
    batch Int64,
    stack Int64,
    level Int64,
    frame Int64
) ENGINE = MergeTree ORDER BY (stack, level);
CREATE TABLE IF NOT EXISTS frames (
    batch Int64,
    frame Int64,
    function LowCardinality(String),
    signature Nullable(String),
    file Nullable(String),
    line Nullable(Int64),
    module Nullable(String),
    offset Nullable(Int64),
    inlined Bool,
    own_code Bool
) ENGINE = MergeTree ORDER BY (frame);
-- Columns that later versions of heaptrack added, for tables that were made before.
ALTER TABLE sessions ADD COLUMN IF NOT EXISTS sampling_rate_bytes Nullable(Int64) AFTER lost_events;
