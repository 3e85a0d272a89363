// `report --summary-only`: the same views and, at the borders of slices, the same numbers, from disk and without network. tests/viewer/report.mjs has reports with a trace.
import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, settled, trace, traces, visit } from "./harness.mjs";

const file = join(traces, "report.html");
execFileSync(bin, ["report", "--summary-only", trace("orders"), "-o", file]);
const page = await visit(pathToFileURL(file).href);
const asked = [];
page.on("request", (request) => /^https?:/.test(request.url()) && asked.push(request.url()));
await settled(page);
const end = print("timeline", trace("orders")).range.to_ns;
const border = (slice) => Math.floor((end * slice) / 256);

await check("it is one file that makes no request and runs only its own script", async () => {
  const html = readFileSync(file, "utf8");
  holds(/script-src 'sha256-[^']+'; style-src 'sha256-/.test(html), "policy");
  holds(!html.includes("unsafe-inline") && !html.includes("connect-src"), "strict");
  holds(statSync(file).size < 1_000_000, "small");
  equal(asked, [], "requests");
});
await check("every view is there", async () => {
  for (const view of ["summary", "flame", "bottom-up", "top-down", "callers?fn=main", "consumed", "allocations", "temporary", "sizes", "memory", "lifetimes", "leaks", "threads", "source"]) {
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
    [`from=${border(20)}&to=${border(180)}`, ["--from", `${border(20)}ns`, "--to", `${border(180)}ns`], ["peak_bytes", "growth_bytes", "allocations", "temporary", "allocated_bytes"]],
    [`from=${border(100)}&to=${border(101)}`, ["--from", `${border(100)}ns`, "--to", `${border(101)}ns`], ["peak_bytes", "growth_bytes", "allocations", "temporary", "allocated_bytes"]],
    [`at=${border(150)}`, ["--at", `${border(150)}ns`], ["live_bytes", "live_allocations"]],
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
await check("a range between borders snaps to the nearest ones", async () => {
  await go(page, `#/bottom-up?from=${border(20) + 1000}&to=${border(180) - 1000}`);
  const snapped = await rows(page, "Bottom-up tree");
  await go(page, `#/bottom-up?from=${border(20)}&to=${border(180)}`);
  equal(snapped, await rows(page, "Bottom-up tree"), "snapped");
});
await check("a range within one slice is that slice, not a moment without a start", async () => {
  await go(page, `#/bottom-up?from=${border(100) + 1000}&to=${border(100) + 2000}&levels=mine`);
  const seen = (await rows(page, "Bottom-up tree")).map((row) => ["peak_bytes", "growth_bytes"].map((cost) => Number(row.cells[cost])).join());
  const { roots } = print("bottom-up", trace("orders"), "--hide", "all-but-mine", "--collapse", "recursion", "--from", `${border(100)}ns`, "--to", `${border(101)}ns`);
  equal(seen.sort(), roots.map(({ total }) => [total.peak_bytes, total.live_bytes - total.base_bytes].join()).sort(), "the slice");
});
await check("the page says which views are only about the whole session", async () => {
  for (const address of ["threads?at=peak", "source?include=function:formatRow", "sizes?exclude=main", "lifetimes?from=0&to=1000", "leaks?include=main", "summary?include=main"]) {
    await go(page, `#/${address}`);
    has(await page.locator("body").innerText(), "only for the whole session and all blocks", address);
  }
  await go(page, "#/threads");
  equal(await page.locator(".reason").count(), 0, "nothing to say");
});
await check("a filter by thread is refused, with the command that can do it", async () => {
  await go(page, "#/bottom-up?thread=1");
  has(await page.locator(".problem").first().innerText(), "heaptrack analyze");
  await go(page, "#/summary");
});
/** Runs `heaptrack report --summary-only` and returns its output on the terminal. */
const made = (most, name, html) => execFileSync("sh", ["-c", `"${bin}" report --summary-only --max-size ${most}M "${trace(name)}" -o "${html}" 2>&1`], { encoding: "utf8" });

await check("a large trace keeps to its budget, says what was cut, and opens", async () => {
  const html = join(traces, "large.html");
  made(24, "compiler", html);
  const whole = statSync(html).size;
  made(0, "compiler", html);
  // A size limit that leaves room for some of the slices.
  const budget = ((whole + statSync(html).size) / 2 / 1e6).toFixed(2);
  const slices = Number(/snap to (\d+) slices instead of 256/.exec(made(budget, "compiler", html))?.[1]);
  holds(slices > 1 && slices < 256, `${slices} slices`);
  holds(statSync(html).size <= Number(budget) * 1e6, `${statSync(html).size} bytes, ${budget} MB asked for`);
  const own = await visit(pathToFileURL(html).href);
  await settled(own);
  has(await own.locator(".summary").innerText(), `snap to ${slices} slices`);
  const length = print("timeline", trace("compiler")).range.to_ns;
  const [from, to] = [1, slices - 1].map((border) => String(Math.floor((length * border) / slices)));
  await go(own, `#/bottom-up?levels=all&from=${from}&to=${to}`);
  const shown = (await rows(own, "Bottom-up tree")).map((row) => Number(row.cells.peak_bytes));
  const wanted = print("bottom-up", trace("compiler"), "--collapse", "recursion", "--depth", "1", "--from", `${from}ns`, "--to", `${to}ns`).roots.map(({ total }) => total.peak_bytes);
  equal(shown, wanted.slice(0, shown.length), "the peak of a range");
  await own.close();
});
await check("a report that is larger than its limit says so", async () => {
  const said = made(0, "node", join(traces, "small.html"));
  has(said, "the texts of source files are left out and so are ranges of time");
  has(said, "It is still larger than 0 MB");
});
await page.close();
