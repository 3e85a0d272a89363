#!/usr/bin/env python3
"""Finds the leak and the churn of every trace below a folder, by asking `heaptrack mcp`.

    find.py HEAPTRACK FOLDER

It knows nothing about the programs: the same questions are asked about each trace. Prints JSON: for each trace, the function
and the file of the place that leaks most and of the place with the most temporary allocations.
"""
import asyncio
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "target/mcp-client"))
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402


async def ask(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def rows(client, tool, **arguments):
    """All rows, page by page."""
    found, cursor = [], {}
    while True:
        answer = await ask(client, tool, limit=2, **arguments, **cursor)
        found += answer["rows"]
        if "next_cursor" not in answer:
            assert len(found) == answer["total_rows"], tool
            return found
        cursor = {"cursor": answer["next_cursor"]}


def place(row):
    return [row["function"], pathlib.Path(row["file"]).name]


async def find(client, trace):
    opened = await ask(client, "open_trace", trace=trace)
    assert opened["complete"] and opened["not_seen"] == [], opened
    leak = (await rows(client, "leaks", trace=trace, verdict="grows"))[0]
    churn = (await rows(client, "top_sites", trace=trace, cost="temporary"))[0]
    # Every answer cites its evidence: the stack of the site contains the place, and the line has the cost.
    for row, cost, value in [(leak, "leaked", leak["live_bytes"]), (churn, "temporary", churn["value"])]:
        stack = await rows(client, "stack", trace=trace, site=row["site"])
        assert any(level.get("line") == row["line"] and level["function"] == row["function"] for level in stack), stack
        lines = await rows(client, "source_lines", trace=trace, file=row["file"], cost=cost)
        assert any(line["line"] == row["line"] and line["value"] >= value and line["text"] for line in lines), lines
    return {"leak": place(leak), "churn": place(churn)}


async def main():
    heaptrack, folder = sys.argv[1:]
    server = StdioServerParameters(command=heaptrack, args=["mcp", folder])
    async with Client(stdio_client(server)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "record" not in names and len(names) == 11, names
        prompts = (await client.list_prompts()).prompts
        for prompt in prompts:
            got = await client.get_prompt(prompt.name, {"trace": "x.htz"})
            assert "x.htz" in got.messages[0].content.text
        traces = [row["trace"] for row in await rows(client, "list_traces")]
        print(json.dumps({pathlib.Path(trace).stem: await find(client, trace) for trace in traces}))


asyncio.run(main())
