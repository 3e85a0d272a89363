-- Views over a dataset in the folder DATASET (replace the word). Only live batches are read: see docs/fleet.md, "What is live".
CREATE OR REPLACE VIEW manifest AS SELECT * FROM read_json('DATASET/manifest/*.json', columns = {batch: 'BIGINT', replaces: 'BIGINT[]'});
CREATE OR REPLACE VIEW live AS SELECT DISTINCT batch FROM manifest WHERE batch NOT IN (SELECT unnest(replaces) FROM manifest);
CREATE OR REPLACE VIEW sessions AS SELECT * FROM read_parquet('DATASET/sessions/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW labels AS SELECT * FROM read_parquet('DATASET/labels/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW sites AS SELECT * FROM read_parquet('DATASET/sites/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW buckets AS SELECT * FROM read_parquet('DATASET/buckets/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW leaks AS SELECT * FROM read_parquet('DATASET/leaks/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW memory AS SELECT * FROM read_parquet('DATASET/memory/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW processes AS SELECT * FROM read_parquet('DATASET/processes/*/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
    WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW stacks AS SELECT DISTINCT * EXCLUDE (batch) FROM read_parquet('DATASET/stacks/*.parquet', union_by_name = true) WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE VIEW frames AS SELECT DISTINCT * EXCLUDE (batch) FROM read_parquet('DATASET/frames/*.parquet', union_by_name = true) WHERE batch IN (SELECT batch FROM live);
