-- Views over a dataset in the folder DATASET (replace the word). Only live batches are read: see docs/fleet.md, "What is live".
-- Texts in the path must stay texts: set spark.sql.sources.partitionColumnTypeInference.enabled=false.
CREATE OR REPLACE TEMPORARY VIEW manifest (batch BIGINT, replaces ARRAY<BIGINT>) USING json OPTIONS (path 'DATASET/manifest/*.json');
CREATE OR REPLACE TEMPORARY VIEW live AS SELECT DISTINCT batch FROM manifest WHERE batch NOT IN (SELECT explode(replaces) FROM manifest);
CREATE OR REPLACE TEMPORARY VIEW sessions_files USING parquet OPTIONS (path 'DATASET/sessions', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW sessions AS SELECT * FROM sessions_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW labels_files USING parquet OPTIONS (path 'DATASET/labels', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW labels AS SELECT * FROM labels_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW sites_files USING parquet OPTIONS (path 'DATASET/sites', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW sites AS SELECT * FROM sites_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW buckets_files USING parquet OPTIONS (path 'DATASET/buckets', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW buckets AS SELECT * FROM buckets_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW leaks_files USING parquet OPTIONS (path 'DATASET/leaks', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW leaks AS SELECT * FROM leaks_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW memory_files USING parquet OPTIONS (path 'DATASET/memory', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW memory AS SELECT * FROM memory_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW processes_files USING parquet OPTIONS (path 'DATASET/processes', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW processes AS SELECT * FROM processes_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW stacks_files USING parquet OPTIONS (path 'DATASET/stacks');
CREATE OR REPLACE TEMPORARY VIEW stacks AS SELECT DISTINCT stack, level, frame FROM stacks_files WHERE batch IN (SELECT batch FROM live);
CREATE OR REPLACE TEMPORARY VIEW frames_files USING parquet OPTIONS (path 'DATASET/frames');
CREATE OR REPLACE TEMPORARY VIEW frames AS SELECT DISTINCT frame, function, signature, file, line, module, offset, inlined, own_code FROM frames_files WHERE batch IN (SELECT batch FROM live);
