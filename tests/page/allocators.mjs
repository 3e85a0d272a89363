// A trace with blocks of several allocators: a tab and a filter, with the same numbers as in print.
import { check, equal, go, has, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const file = trace("allocators");
const server = await serve([file, trace("orders")]);
const page = await visit(server.url);
await settled(page);
const COSTS = ["peak_bytes", "live_bytes", "allocations", "temporary", "allocated_bytes", "deallocations"];
const wanted = print("allocators", file).allocators;

await check("the list of allocators has print's numbers", async () => {
  equal(wanted.length, 5, "malloc and four others");
  await go(page, "#/allocators");
  const seen = (await rows(page, "Allocators")).map((row) => COSTS.map((cost) => Number(row.cells[cost])).join());
  equal(seen.sort(), wanted.map(({ costs }) => COSTS.map((cost) => costs[cost]).join()).sort());
});
await check("the filter shows only blocks of one allocator", async () => {
  await go(page, "#/summary?allocator=jemalloc");
  has(await page.locator(".figures").innerText(), print("summary", file, "--allocator", "jemalloc").totals.allocations.toLocaleString("en"), "its allocations");
  has(await page.locator("header").first().innerText(), "allocator jemalloc", "the filter is shown");
});
await check("a trace with malloc's blocks only has no such tab", async () => {
  await go(page, "#/summary?file=1");
  holds(!(await page.getByRole("tablist").innerText()).includes("Allocators"), "no tab");
  await go(page, "#/summary");
  has(await page.getByRole("tablist").innerText(), "Allocators");
});
await page.close();
