// Traces of several processes, one made of two traces and one of a followed tree: a tab, a lane for each process, and a filter, with the same numbers as in print.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, serve, settled, trace, traces, visit } from "./harness.mjs";

const SUBJECTS = ["tree", "followed"];
const server = await serve([...SUBJECTS.map(trace), trace("orders")]);
const page = await visit(server.url);
await settled(page);
const COSTS = ["peak_bytes", "live_bytes", "allocations", "temporary"];
const numbers = (list) => list.map(({ costs }) => COSTS.map((cost) => costs[cost]).join()).sort();
const shown = async (where) => (await rows(where, "Processes")).map((row) => COSTS.map((cost) => Number(row.cells[cost])).join()).sort();
/** How print writes the end of a process. */
const ended = ({ exit }) => exit ?? "runs";

for (const [at, subject] of SUBJECTS.entries()) {
  const file = trace(subject);
  const wanted = print("processes", file);
  const count = wanted.processes.length;
  await check(`${subject}: the list of processes has print's numbers, by process and by command`, async () => {
    if (subject === "tree") equal(count, 2, "two traces were merged");
    else holds(count >= 12 && wanted.processes.some(({ start }) => start === "exec") && wanted.processes.some((one) => one.inherited_bytes > 0), "forks and execs");
    await go(page, `#/processes?file=${at}`);
    equal(await shown(page), numbers(wanted.processes), "processes");
    const texts = (await rows(page, "Processes")).map((row) => row.text);
    for (const one of wanted.processes) holds(texts.some((text) => text.includes(`${one.name} (${one.pid})`) && text.includes(ended(one))), `${one.name} (${one.pid}), ${ended(one)} is in ${texts}`);
    await page.getByRole("button", { name: "by command" }).click();
    await page.waitForFunction(() => location.hash.includes("group=command"));
    await settled(page);
    equal(await shown(page), numbers(wanted.commands), "commands");
  });
  await check(`${subject}: a process has a lane, and a click on its name shows only what it allocated`, async () => {
    const { bands } = print("timeline", file, "--by", "process", "--top", "6");
    for (const [number, band] of bands.entries()) {
      await go(page, `#/summary?file=${at}`);
      await page.locator(".timeline").getByRole("button", { name: "processes" }).click();
      await settled(page);
      const names = await page.locator(".timeline button.legend-entry").allInnerTexts();
      equal(names.map((name) => name.trim()), bands.slice(0, names.length).map((one) => `${one.name} (${one.pid})`), "lanes");
      if (number >= names.length) break;
      await page.locator(".timeline button.legend-entry").nth(number).click();
      await page.waitForFunction((index) => decodeURIComponent(location.hash).includes(`process=#${index}`), band.process);
      await settled(page);
      const only = print("summary", file, "--process", `#${band.process}`);
      has(await page.locator(".figures").innerText(), only.totals.allocations.toLocaleString("en"), `the allocations of process #${band.process}`);
      has(await page.locator("header").first().innerText(), `process #${band.process}`, "the filter is shown");
      if (subject === "tree") break;
    }
  });
}
await check("a report without the trace has the list, too", async () => {
  const html = join(traces, "followed.html");
  execFileSync(bin, ["report", "--summary-only", trace("followed"), "-o", html]);
  const report = await visit(pathToFileURL(html).href, "#/processes");
  await settled(report);
  equal(await shown(report), numbers(print("processes", trace("followed")).processes), "processes");
  await report.close();
});
await check("what is no process is said in a note", async () => {
  const answer = await fetch(`${server.origin}/api/profile?trace=0&process=nobody`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } });
  equal((await answer.json()).note, "`process nobody` is not in the trace, which has 2 processes: orders, screens");
});
await check("a trace of one process has no such tab", async () => {
  await go(page, "#/summary?file=2");
  holds(!(await page.getByRole("tablist").innerText()).includes("Processes"), "no tab");
  await go(page, "#/summary?file=0");
  has(await page.getByRole("tablist").innerText(), "Processes");
});
await page.close();
