// `heaptrack report`, which carries the trace and the engine, in a browser, from disk and from a plain static server: it answers what it was not asked when it was made.
//
// Arguments: traces of every kind that can be opened. Environment: as tests/page/harness.mjs.
import { execFileSync } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { crawl, seed, withoutFrames } from "../page/crawl/crawler.mjs";
import { SUBJECTS } from "../page/crawl/subjects.mjs";
import { bin, check, end, equal, go, has, holds, print, rows, saved, serve, settled, trace, traces, visit } from "../page/harness.mjs";
import { VIEWS, drop, outside, questions, shown, site, tryRequests, tryScripts, viewer, wanted } from "./shared.mjs";

/** Writes a report and returns what the command says. */
const made = (html, ...words) => execFileSync("sh", ["-c", '"$0" report "$@" 2>&1', bin, ...words, "-o", html], { encoding: "utf8" });
const file = join(traces, "whole.html");
const said = made(file, trace("orders"));
const away = await outside();
const host = await site(file);

await check("it is the viewer with a trace, and has the viewer's policy", async () => {
  equal(said.trim().split("\n").length, 1, said);
  const policy = (path) => /Content-Security-Policy" content="([^"]*)"/.exec(readFileSync(path, "utf8"))?.[1];
  equal(policy(file), policy(viewer), "policy");
  const room = statSync(file).size - statSync(viewer).size - (statSync(trace("orders")).size * 4) / 3;
  holds(room > 0 && room < 40_000, `${room} bytes besides the viewer and the trace`);
});

for (const [how, address] of [["from disk", pathToFileURL(file).href], ["from a static server", host.url]]) {
  const page = await visit(address);
  await settled(page);
  await check(`${how}: every view is there, and so are the texts of sources`, async () => {
    has(await page.locator("header .command").innerText(), "orders");
    for (const view of VIEWS) {
      await go(page, `#/${view}`);
      equal(await page.locator(".problem").allInnerTexts(), [], view);
      holds((await page.locator("#view").innerText()).length > 20, `${view} is empty`);
    }
    await page.waitForSelector(".listing pre");
    has(await page.locator(".listing").innerText(), "struct Pipeline", "the user's own source");
  });
  await check(`${how}: ranges, moments and filters that nobody asked for before have the numbers of print`, async () => {
    for (const [words, options, columns] of questions()) {
      await go(page, `#/bottom-up?levels=mine&${words}`);
      equal(await shown(page, columns), wanted("orders", columns, ...options), words);
    }
  });
  await check(`${how}: it is compared with a dropped file, and saves`, async () => {
    await drop(page, trace("longer"));
    await go(page, "#/bottom-up?file=1&compare=0&levels=mine&recursion=1");
    const of = (name) => new Map(print("bottom-up", trace(name), "--hide", "all-but-mine", "--collapse", "recursion").roots.map((one) => [one.function ?? one.short, one.total.allocations]));
    const [now, before] = [of("longer"), of("orders")];
    const differences = [...new Set([...now.keys(), ...before.keys()])].map((name) => (now.get(name) ?? 0) - (before.get(name) ?? 0)).sort((a, b) => a - b);
    equal((await rows(page, "Bottom-up tree")).map((row) => Number(row.cells.allocations)).sort((a, b) => a - b), differences, "differences of allocations");
    await go(page, "#/summary?file=0");
    await page.getByRole("button", { name: "Export" }).click();
    has(await saved(page, () => page.getByText("Functions as CSV").click()), "formatRow");
  });
  await check(`${how}: no other script can run`, () => tryScripts(page));
  await check(`${how}: a request to anywhere is impossible`, () => tryRequests(page, away));
  await page.close();
}
await check("the server that must see nothing would have seen it", async () => {
  await fetch(`http://${away.place}/control`);
  equal(away.seen, ["/control"], "requests");
});
await check("rules and suppressions are those of the command, and a link leads to a view of the report", async () => {
  const [known, rules, html] = ["known.supp", "own.rules", "settings.html"].map((name) => join(traces, name));
  writeFileSync(known, "leak:makeToken\n");
  writeFileSync(rules, "dependency name report::*\n");
  made(html, trace("orders"), "--suppressions", known, "--rules", rules);
  const page = await visit(pathToFileURL(html).href, "#/bottom-up?levels=mine&include=main");
  await settled(page);
  const columns = ["leaked_bytes", "allocations"];
  const options = ["--include", "main", "--suppressions", known, "--rules", rules];
  equal(await shown(page, columns), wanted("orders", columns, ...options), "with both");
  for (const without of [["--suppressions", known], ["--rules", rules]])
    holds(wanted("orders", columns, "--include", "main", ...without).join() !== wanted("orders", columns, ...options).join(), `${without} makes a difference`);
  await page.close();
});
await check("what does not fit is left out, and the report says so", async () => {
  const html = join(traces, "limited.html");
  const room = statSync(file).size;
  const least = (room - 2000) / 1e6;
  has(made(html, trace("orders"), "--max-size", `${least}M`), "the texts of source files are left out");
  holds(statSync(html).size <= least * 1e6, `${statSync(html).size} bytes`);
  const page = await visit(pathToFileURL(html).href);
  await settled(page);
  has(await page.locator(".summary").innerText(), "the texts of source files are left out");
  await go(page, "#/bottom-up?levels=mine&thread=0");
  equal(await page.locator(".problem").count(), 0, "it has the trace");
  await page.close();
  has(made(html, trace("orders"), "--max-size", "1M"), "This report has prepared answers instead of the trace, as with --summary-only, because a report with the trace would have");
  const small = await visit(pathToFileURL(html).href);
  await settled(small);
  has(await small.locator(".summary").innerText(), "prepared answers instead of the trace");
  await small.close();
});
await check("a report of every kind of file opens, with the names that this machine has", async () => {
  const html = join(traces, "kind.html");
  for (const path of process.argv.slice(2)) {
    made(html, path);
    const page = await visit(pathToFileURL(html).href, "#/bottom-up?levels=all");
    await settled(page);
    equal(await page.locator(".problem").allInnerTexts(), [], path);
    const names = print("bottom-up", path, "--collapse", "recursion", "--depth", "1").roots.map((one) => one.short ?? one.function).filter(Boolean);
    const texts = (await rows(page, "Bottom-up tree")).map(({ text }) => text.split("\n"));
    for (const name of names.slice(0, 3)) holds(texts.some((lines) => lines.includes(name)), `${path}: ${name} is not in ${JSON.stringify(texts).slice(0, 600)}`);
    await page.close();
  }
});
await check("a report of a followed tree has print's numbers for each process", async () => {
  const html = join(traces, "followed.html");
  made(html, trace("followed"));
  const page = await visit(pathToFileURL(html).href, "#/processes");
  await settled(page);
  const columns = ["peak_bytes", "live_bytes", "allocations", "temporary"];
  const { processes } = print("processes", trace("followed"));
  const listed = (await rows(page, "Processes")).map((row) => columns.map((cost) => Number(row.cells[cost])).join());
  equal(listed.sort(), processes.map(({ costs }) => columns.map((cost) => costs[cost]).join()).sort(), "the list");
  for (const { index } of processes) {
    await go(page, `#/bottom-up?levels=mine&process=%23${index}`);
    equal(await shown(page, ["leaked_bytes", "allocations"]), wanted("followed", ["leaked_bytes", "allocations"], "--process", `#${index}`), `process #${index}`);
  }
  await page.close();
});
await check(`random states of a report without a contradiction to the server (HEAPTRACK_SEED=${seed})`, async () => {
  const subject = SUBJECTS.screens;
  const html = join(traces, "crawled-whole.html");
  made(html, trace(subject.traces[0]));
  const server = await serve(subject.traces.map(trace));
  const page = await visit(pathToFileURL(html).href, "", withoutFrames);
  const open = () => drop(page, trace(subject.traces[1]));
  const reload = async () => {
    await page.reload();
    await page.waitForSelector(".figures");
    await open();
  };
  await open();
  const { wrong, states } = await crawl(page, server, { seed, states: Number(process.env.CRAWL_STATES ?? 200), most: 12, subject, reload });
  equal(wrong, [], `contradictions in ${states} states`);
  await page.close();
});
away.stop();
host.stop();
await end();
