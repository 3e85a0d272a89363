#!/usr/bin/env python3
"""Asks the questions of fleet/ with an engine.

engines.py ENGINE DATASET [REPEAT]     ENGINE: duckdb, clickhouse (chDB) or spark (two workers in local-cluster mode)

Prints one JSON object: the rows of each question, and the seconds that each took (the best of REPEAT, default 1).
"""
import json
import os
import sys
import time

FLEET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fleet")
QUESTIONS = ("top_peak", "grown", "leaking_hosts", "new_sites", "label_costs")


def statements(engine, name, dataset):
    with open(os.path.join(FLEET, engine, name + ".sql")) as file:
        lines = [line for line in file if not line.startswith("--")]
    text = "".join(lines).replace("DATASET", dataset)
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]


def duckdb_engine(dataset):
    import duckdb

    connection = duckdb.connect()
    for statement in statements("duckdb", "views", dataset):
        table = statement.split("VIEW ")[1].split()[0]
        if table in ("manifest", "live") or os.path.isdir(os.path.join(dataset, table)):
            connection.execute(statement)

    def ask(sql):
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    return ask


def clickhouse_engine(dataset):
    from chdb import session

    connection = session.Session()
    for statement in statements("clickhouse", "views", dataset):
        connection.query(statement)

    def ask(sql):
        text = str(connection.query(sql + " SETTINGS output_format_json_quote_64bit_integers = 0", "JSONEachRow"))
        return [json.loads(line) for line in text.splitlines()]

    return ask


def spark_engine(dataset):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("heaptrack")
    builder = builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "4")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for statement in statements("spark", "views", dataset):
        table = statement.split("VIEW ")[1].split()[0].split("_files")[0]
        if table in ("manifest", "live") or os.path.isdir(os.path.join(dataset, table)):
            spark.sql(statement)
    return lambda sql: [row.asDict() for row in spark.sql(sql).collect()]


ENGINES = {"duckdb": duckdb_engine, "clickhouse": clickhouse_engine, "spark": spark_engine}


def main():
    engine, dataset = sys.argv[1], os.path.abspath(sys.argv[2])
    repeat = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    ask = ENGINES[engine](dataset)
    answers = {"seconds": {}}
    for question in QUESTIONS:
        (sql,) = statements(engine, question, dataset)
        best = None
        for _ in range(repeat):
            start = time.monotonic()
            answers[question] = ask(sql)
            took = time.monotonic() - start
            best = took if best is None else min(best, took)
        answers["seconds"][question] = round(best, 3)
        print(question, answers["seconds"][question], "s", file=sys.stderr, flush=True)
    # A cluster writes to stdout as well.
    sys.stdout.write("ANSWERS " + json.dumps(answers, default=str) + "\n")


if __name__ == "__main__":
    main()
