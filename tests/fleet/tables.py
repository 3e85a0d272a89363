#!/usr/bin/env python3
"""Loads a dataset into ClickHouse's tables and asks them, as a server with Grafana does: tables.py DATASET DATABASE REPORT.

Runs fleet/clickhouse/tables.sql, and load.sql twice, with chDB in the folder DATABASE, which may have been loaded before. Then
the questions, and the SQL of each panel of fleet/grafana/fleet.json, must give the rows of REPORT.
"""
import json
import os
import sys

import duckdb
from chdb import session

import engines

dataset, database, report = (os.path.abspath(word) for word in sys.argv[1:4])
PANELS = {
    "Highest peak by service and version": "top_peak",
    "Functions that grew this week": "grown",
    "Hosts that leak": "leaking_hosts",
    "Cost by label": "label_costs",
    "Functions that allocate since version 1.5": "new_sites",
}
connection = session.Session(database)


def ask(sql):
    text = str(connection.query(sql + " SETTINGS output_format_json_quote_64bit_integers = 0", "JSONEachRow"))
    return [json.loads(line) for line in text.splitlines()]


def count_rows():
    tables = ("sessions", "labels", "sites", "buckets", "leaks", "memory", "processes", "stacks", "frames")
    return {table: ask(f"SELECT count() AS rows FROM {table}")[0]["rows"] for table in tables}


def expanded(sql, services):
    """What Grafana makes of its variables and macros."""
    sql = sql.replace("${service:singlequote}", ", ".join(f"'{service}'" for service in services))
    sql = sql.replace("$__dateFilter(date)", "(date >= toDate('2026-01-01') AND date <= toDate('2026-12-31'))")
    assert "$" not in sql, sql
    return sql


def mean_peaks():
    """The mean peaks by day and service, which no question has, from the files and by another engine."""
    duck = duckdb.connect()
    for statement in engines.statements("duckdb", "views", dataset)[:3]:
        duck.execute(statement)
    rows = duck.execute("SELECT date, service, avg(peak_bytes) FROM sessions GROUP BY ALL").fetchall()
    return {(str(date), service): mean for date, service, mean in rows}


connection.query("CREATE DATABASE IF NOT EXISTS fleet")
connection.query("USE fleet")
for name in ("tables", "load", "load"):
    before = count_rows() if name == "load" else None
    for statement in engines.statements("clickhouse", name, dataset):
        connection.query(statement)
    print(name, before, file=sys.stderr)
assert before == count_rows(), ("the second load changed rows", before, count_rows())
wanted = json.load(open(report))
assert count_rows()["sessions"] == wanted["traces"]
for question in engines.QUESTIONS:
    (sql,) = engines.statements("clickhouse", question, dataset)
    assert ask(sql) == wanted[question] != [], question
with open(os.path.join(engines.FLEET, "grafana", "fleet.json")) as file:
    dashboard = json.load(file)
variable = next(item for item in dashboard["templating"]["list"] if item["name"] == "service")
services = [row["service"] for row in ask(variable["query"])]
assert services == sorted({row["service"] for row in wanted["top_peak"]})
seen = set()
for panel in dashboard["panels"]:
    (target,) = panel["targets"]
    rows = ask(expanded(target["rawSql"], services))
    if panel["title"] in PANELS:
        assert rows == wanted[PANELS[panel["title"]]], panel["title"]
    else:
        found = {(row["time"][:10], row["service"]): row["peak_bytes"] for row in rows}
        means = mean_peaks()
        assert found.keys() == means.keys() and all(abs(found[key] - means[key]) < 1e-6 * means[key] for key in means), panel["title"]
    seen.add(panel["title"])
assert seen >= PANELS.keys() and len(seen) == len(PANELS) + 1, seen
print(f"ClickHouse's tables: {count_rows()}; the questions and {len(seen)} panels of the dashboard have the rows of dataset report")
