// A trace of several processes: a tab, a lane for each process, and a filter, with the same numbers as in print.
import { check, equal, go, has, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const file = trace("tree");
const server = await serve([file, trace("orders")]);
const page = await visit(server.url);
await settled(page);
const COSTS = ["peak_bytes", "live_bytes", "allocations", "temporary"];
const wanted = print("processes", file);
const numbers = (list) => list.map(({ costs }) => COSTS.map((cost) => costs[cost]).join()).sort();

await check("the list of processes has print's numbers, by process and by command", async () => {
  equal(wanted.processes.length, 2, "two traces were merged");
  await go(page, "#/processes");
  const seen = (await rows(page, "Processes")).map((row) => COSTS.map((cost) => Number(row.cells[cost])).join());
  equal(seen.sort(), numbers(wanted.processes));
  await page.getByRole("button", { name: "by command" }).click();
  await page.waitForFunction(() => location.hash.includes("group=command"));
  await settled(page);
  equal((await rows(page, "Processes")).length, wanted.commands.length, "commands");
});
await check("a process has a lane, and a click on its name shows only what it allocated", async () => {
  await go(page, "#/summary");
  await page.locator(".timeline").getByRole("button", { name: "processes" }).click();
  await settled(page);
  equal(await page.locator(".timeline .legend-entry").count(), 2, "two processes, two lanes");
  const [first] = print("timeline", file, "--by", "process").bands;
  await page.locator(".timeline .legend-entry").first().click();
  await page.waitForFunction(() => location.hash.includes("process="));
  await settled(page);
  const only = print("summary", file, "--process", `#${first.process}`);
  has(await page.locator(".figures").innerText(), only.totals.allocations.toLocaleString("en"), "the allocations of that process");
  has(await page.locator("header").first().innerText(), `process #${first.process}`, "the filter is shown");
});
await check("what is no process is said in a note", async () => {
  const answer = await fetch(`${server.origin}/api/profile?trace=0&process=nobody`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } });
  equal((await answer.json()).note, "`process nobody` is not in the trace, which has 2 processes: orders, screens");
});
await check("a trace of one process has no such tab", async () => {
  await go(page, "#/summary?file=1");
  holds(!(await page.getByRole("tablist").innerText()).includes("Processes"), "no tab");
  await go(page, "#/summary");
  has(await page.getByRole("tablist").innerText(), "Processes");
});
await page.close();
