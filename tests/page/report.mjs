// One file instead of a server: the same views, the same numbers at borders of slices, from disk, with no network.
import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, settled, trace, traces, visit } from "./harness.mjs";

const file = join(traces, "report.html");
execFileSync(bin, ["report", trace("orders"), "-o", file]);
const page = await visit(pathToFileURL(file).href);
const asked = [];
page.on("request", (request) => /^https?:/.test(request.url()) && asked.push(request.url()));
await settled(page);
const end = print("timeline", trace("orders")).range.to_ns;
const border = (slice) => Math.floor((end * slice) / 256);

await check("it is one file that asks nobody and runs only its own script", async () => {
  const html = readFileSync(file, "utf8");
  holds(/script-src 'sha256-[^']+'; style-src 'sha256-/.test(html), "policy");
  holds(!html.includes("unsafe-inline") && !html.includes("connect-src"), "strict");
  holds(statSync(file).size < 1_000_000, "small");
  equal(asked, [], "requests");
});
await check("every view is there", async () => {
  for (const view of ["summary", "flame", "bottom-up", "top-down", "callers?fn=main", "consumed", "allocations", "temporary", "sizes", "lifetimes", "leaks", "threads", "source"]) {
    await go(page, `#/${view}`);
    equal(await page.locator(".problem").count(), 0, view);
  }
  await go(page, "#/source");
  await page.waitForSelector(".listing pre");
  has(await page.locator(".listing").innerText(), "struct Pipeline", "the text of the user's own source is carried along");
});
await check("whole session, ranges at borders and the peak are print's", async () => {
  for (const [words, options, columns] of [
    ["", [], ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"]],
    [`from=${border(20)}&to=${border(180)}`, ["--from", String(border(20)), "--to", String(border(180))], ["peak_bytes", "growth_bytes", "allocations", "temporary", "allocated_bytes"]],
    [`from=${border(100)}&to=${border(101)}`, ["--from", String(border(100)), "--to", String(border(101))], ["peak_bytes", "growth_bytes", "allocations", "temporary", "allocated_bytes"]],
    [`at=${border(150)}`, ["--at", String(border(150))], ["live_bytes", "live_allocations"]],
    ["at=peak", ["--at", "peak"], ["live_bytes", "live_allocations"]],
    ["include=function:formatRow", ["--include", "function:formatRow"], ["peak_bytes", "allocations", "temporary"]],
  ]) {
    await go(page, `#/bottom-up?${words}`);
    const seen = await rows(page, "Bottom-up tree");
    const wanted = print("bottom-up", trace("orders"), "--hide", "all-but-mine", "--collapse", "recursion", ...options).roots;
    const of = (sums, cost) => (cost === "growth_bytes" ? sums.live_bytes - sums.base_bytes : sums[cost]);
    const order = (list) => list.map((one) => one.join()).sort();
    equal(order(seen.map((row) => columns.map((cost) => Number(row.cells[cost])))), order(wanted.map((one) => columns.map((cost) => of(one.total, cost)))), words);
  }
});
await check("a range between borders snaps, and the page says to which", async () => {
  await go(page, `#/bottom-up?from=${border(20) + 1000}&to=${border(180) - 1000}`);
  const snapped = await rows(page, "Bottom-up tree");
  await go(page, `#/bottom-up?from=${border(20)}&to=${border(180)}`);
  equal(snapped, await rows(page, "Bottom-up tree"), "snapped");
});
await check("what a report cannot do it says", async () => {
  await go(page, "#/bottom-up?thread=1");
  has(await page.locator(".problem").first().innerText(), "heaptrack analyze");
  await go(page, "#/summary");
});
await check("a size budget is kept, and what was cut is said", async () => {
  const small = join(traces, "small.html");
  const said = execFileSync("sh", ["-c", `"${bin}" report --max-size 0 "${trace("node")}" -o "${small}" 2>&1`], { encoding: "utf8" });
  has(said, "the texts of source files are left out and so are ranges of time");
  has(said, "It is still larger than 0 MB", "what cannot be kept is said, too");
});
await page.close();
