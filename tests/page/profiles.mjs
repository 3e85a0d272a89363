// Heap profiles of other tools: what they know is print's, and what they do not know is absent, not zero.
import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, serve, settled, trace, traces, visit } from "./harness.mjs";

/** A profile of massif: bytes at the peak and at the end, without the number of blocks and without all allocations. */
const MASSIF = `desc: --detailed-freq=1
cmd: ./shop --fast
time_unit: i
#-----------
snapshot=0
#-----------
time=100
mem_heap_B=3000
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=peak
n2: 3000 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 2000 0x401136: fill (shop.c:12)
  n0: 2000 0x401150: main (shop.c:20)
 n0: 1000 0x401160: other (shop.c:30)
#-----------
snapshot=1
#-----------
time=200
mem_heap_B=500
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=detailed
n1: 500 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 500 0x401136: fill (shop.c:12)
  n0: 500 0x401150: main (shop.c:20)
`;
const massif = join(traces, "massif.out.1");
writeFileSync(massif, MASSIF);
/** What was live at the peak, as pprof. It does not know all allocations. */
const live = join(traces, "live.pb.gz");
execFileSync(bin, ["export", "--to", "pprof", "--at", "peak", trace("orders"), "-o", live]);
/** All that pprof can hold. */
const whole = join(traces, "whole.pb.gz");
execFileSync(bin, ["export", "--to", "pprof", trace("orders"), "-o", whole]);

const TIMELESS = ["Summary", "Flame graph", "Bottom-up", "Top-down", "Caller / callee", "Source"];
const server = await serve([massif, live, whole, trace("orders")]);
const page = await visit(server.url);
await settled(page);
const tabs = () => page.getByRole("tab").allInnerTexts();
/** The costs that the tree has columns for, without the column of names. */
const columns = async () => Object.keys((await rows(page, "Bottom-up tree"))[0].cells).filter((name) => name !== "name" && !name.startsWith("self"));
const ask = (view, query) => fetch(`${server.origin}/api/${view}?${query}`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } });

await check("a profile has no timeline, no tabs about time or single blocks, and says what it is", async () => {
  for (const file of [0, 1, 2]) {
    await go(page, `#/summary?file=${file}`);
    await page.waitForSelector(".figures");
    equal(await tabs(), TIMELESS, `tabs of ${file}`);
    equal(await page.locator(".timeline").count(), 0, "timeline");
    const top = await page.locator("header.top").innerText();
    has(top, "sums by stack, without times");
    for (const absent of ["events", "lost", "pid 0"]) holds(!top.includes(absent), `${absent} in ${top}`);
    equal(await page.locator(".problem").count(), 0, "problems");
  }
});
await check("figures and lists are those that the file knows", async () => {
  await go(page, "#/summary?file=0");
  await page.waitForSelector(".figures");
  const figures = await page.locator(".figures").innerText();
  has(figures, "500 B");
  has(figures, "the number of blocks is not known");
  holds(!/Leaked|Allocat|Temporary|RSS|Short-lived/.test(figures), figures);
  equal(await page.locator(".summary h2").allInnerTexts(), ["Live when the profile was written", "Held at the peak", "Flame graph"], "lists");
  const text = await page.locator(".summary").innerText();
  holds(!/\b0 blocks\b|mean life|each\b/.test(text), text);
  await go(page, "#/summary?file=1");
  await page.waitForSelector(".figures");
  holds(!/Peak|Allocat/.test(await page.locator(".figures").innerText()), "peak of a profile that has none");
});
await check("columns are those that the file knows, with print's values", async () => {
  const known = { 0: ["peak_bytes", "leaked_bytes"], 1: ["leaked_bytes"], 2: ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"] };
  const files = [massif, live, whole];
  for (const [file, wanted] of Object.entries(known)) {
    await go(page, `#/bottom-up?file=${file}&levels=all`);
    equal(await columns(), wanted, `columns of ${file}`);
    const seen = (await rows(page, "Bottom-up tree")).map((row) => wanted.map((cost) => Number(row.cells[cost])).join());
    const roots = print("bottom-up", files[file], "--collapse", "recursion").roots;
    equal(seen.sort(), roots.map(({ total }) => wanted.map((cost) => total[cost]).join()).sort(), `rows of ${file}`);
    for (const { total } of roots) equal(Object.keys(total).filter((cost) => wanted.includes(cost) && total[cost] === null), [], "known and null");
    for (const { total } of roots) equal(total.lifetime_ns, null, "a lifetime");
  }
});
await check("the details of a stack and the filters have only what is known", async () => {
  await go(page, "#/summary?file=0");
  await page.locator(".entry").first().click();
  const details = page.locator("aside");
  await details.locator("table.costs").waitFor();
  equal(await details.locator("table.costs tbody th").allInnerTexts(), ["Peak", "Live"], "costs");
  holds(!/allocations|own peak|\b0 live/.test(await details.innerText()), await details.innerText());
  await page.getByRole("button", { name: "+ filter" }).click();
  equal(await page.locator("form legend").allInnerTexts(), ["Stacks"], "filters");
  await page.keyboard.press("Escape");
});
await check("a link to a view that needs events says so, and a selected time is ignored", async () => {
  for (const view of ["sizes", "lifetimes", "leaks", "threads", "consumed"]) {
    await go(page, `#/${view}?file=1`);
    has(await page.locator("#view").innerText(), "needs events", view);
  }
  await go(page, "#/bottom-up?file=1&at=5&levels=all");
  equal(await columns(), ["leaked_bytes"], "columns");
});
await check("the server refuses what needs events", async () => {
  for (const view of ["timeline", "sizes", "lifetimes", "threads", "processes", "leaks"]) {
    const answer = await ask(view, "trace=1");
    equal(answer.status, 400, view);
    has(await answer.text(), "needs events");
  }
  equal((await ask("bottom-up", "trace=1&cost=peak")).status, 400, "a cost that is not known");
  const summary = await (await ask("summary", "trace=1")).json();
  equal([summary.totals.allocations, summary.totals.peak_bytes, summary.runtime_ns, summary.lists.peak], [null, null, null, null], "unknown numbers");
  equal(summary.totals.live_bytes, print("profile", trace("orders"), "--at", "peak").totals.live_bytes, "live bytes");
});
await check("a profile is compared with a trace, in the costs that both know", async () => {
  await go(page, "#/bottom-up?file=3&compare=1&levels=all");
  await settled(page);
  equal(await columns(), ["leaked_bytes"], "columns");
  equal(await page.locator(".problem").count(), 0, "problems");
  equal(await page.locator(".timeline").count(), 0, "timeline");
});
await check("a trace beside profiles is as before", async () => {
  await go(page, "#/summary?file=3");
  await page.waitForSelector(".timeline");
  holds((await tabs()).length > TIMELESS.length, "tabs");
  has(await page.locator(".figures").innerText(), "Leaked");
});
await check("a report of a profile opens without a server", async () => {
  for (const [name, file] of [["massif", massif], ["whole", whole]]) {
    const html = join(traces, `${name}-profile.html`);
    execFileSync(bin, ["report", "--summary-only", file, "-o", html]);
    const own = await visit(pathToFileURL(html).href, "#/bottom-up?levels=all");
    await settled(own);
    equal(await own.getByRole("tab").allInnerTexts(), TIMELESS, "tabs");
    const seen = (await rows(own, "Bottom-up tree")).map((row) => Number(row.cells.leaked_bytes));
    equal(seen.reduce((sum, value) => sum + value, 0), print("profile", file).totals.leaked_bytes, "live bytes");
    equal(await own.locator(".problem").count(), 0, "problems");
    await own.close();
  }
});
await check("a damaged profile is refused before the server starts", async () => {
  const bad = join(traces, "bad.out");
  writeFileSync(bad, "heap_v2/1\n@ 0x1\n  t*: 1: x\n");
  for (const command of ["analyze", "report"]) {
    const { status, stderr } = spawnSync(bin, [command, bad], { encoding: "utf8", timeout: 20_000 });
    equal(status, 2, `${command}: ${stderr}`);
    equal(stderr.trim().split("\n").length, 1, stderr);
  }
});
await page.close();
