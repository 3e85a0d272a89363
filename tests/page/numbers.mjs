// The server's answers equal those of `print --json --view` for the same query. So do the visible numbers of trees, functions and the list of most
// allocations, and the sums of the exported folded stacks.
import { check, equal, go, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const QUERIES = [
  ["", []],
  ["at=peak", ["--at", "peak"]],
  ["at=100000000", ["--at", "100000000ns"]],
  ["from=20000000&to=300000000", ["--from", "20000000ns", "--to", "300000000ns"]],
  ["include=function:a&size=32..", ["--include", "function:a", "--size", "32.."]],
];
const VIEWS = ["summary", "stacks", "profile", "bottom-up", "top-down", "callers", "flame", "timeline", "sizes", "memory", "lifetimes", "threads", "leaks", "source", "suppressions"];
const LEVELS = { mine: ["--hide", "all-but-mine"], all: [] };

for (const name of ["orders", "python", "node"]) {
  const server = await serve([trace(name)]);
  const page = await visit(server.url);
  await settled(page);
  const ask = async (view, query) => (await fetch(`${server.origin}/api/${view}?trace=0${query ? `&${query}` : ""}`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } })).json();
  // The order of the query's words is not part of the answer.
  const plain = (answer) => ({ ...answer, query: undefined });
  const queries = name === "orders" ? QUERIES : name === "python" ? [QUERIES[0], QUERIES[1]] : [QUERIES[0], QUERIES[3]];
  await check(`${name}: the server answers as print does`, async () => {
    for (const [query, options] of queries) for (const view of VIEWS) equal(plain(await ask(view, query)), plain(print(view, trace(name), ...options)), `${view}?${query}`);
  });
  for (const [levels, hide] of Object.entries(LEVELS)) {
    await check(`${name}, ${levels}: trees and functions are print's`, async () => {
      for (const [query, options] of queries) {
        const isMoment = query.startsWith("at=");
        const same = [...hide, "--collapse", "recursion", ...options];
        const costs = isMoment ? ["live_bytes", "live_allocations"] : query.startsWith("from") ? ["peak_bytes", "growth_bytes", "kept_bytes", "allocations", "temporary", "allocated_bytes"] : ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"];
        const main = costs[0];
        const word = isMoment ? "live" : "peak";
        const of = (sums, cost) => (cost === "growth_bytes" ? sums.live_bytes - sums.base_bytes : sums[cost]);
        const table = (list, sums) => list.map((one) => costs.map((cost) => of(sums(one), cost))).sort((a, b) => b.join().localeCompare(a.join()));
        const shown = (list, prefix = "") => list.map((row) => costs.map((cost) => Number(row.cells[`${prefix}${cost}`]))).sort((a, b) => b.join().localeCompare(a.join()));
        for (const view of ["bottom-up", "top-down"]) {
          await go(page, `#/${view}?levels=${levels}&cost=${main}&${query}`);
          await page.locator(".tools").getByRole("button", { name: "Collapse" }).click();
          await settled(page);
          const label = view === "bottom-up" ? "Bottom-up tree" : "Top-down tree";
          const wanted = print(view, trace(name), "--cost", word, ...same).roots;
          const seen = await rows(page, label);
          const first = wanted.slice(0, seen.length);
          equal(seen.map((row) => Number(row.cells[main])), first.map((one) => of(one.total, main)), `${view}?${query}, in order`);
          if (seen.length === wanted.length) equal(shown(seen), table(wanted, (one) => one.total), `${view}?${query}`);
          // Expand everything below the first row, to check these rows, too.
          await page.locator(`[aria-label="${label}"]`).focus();
          await page.keyboard.press("Home");
          await page.keyboard.press("*");
          await settled(page);
          const below = (await rows(page, label)).slice(1).filter((row) => row.level > 1);
          const flat = [];
          const walk = (node, level) => node.children.forEach((child) => (flat.push([level, of(child.total, main)]), walk(child, level + 1)));
          if (wanted[0]) walk(wanted[0], 2);
          const count = below.findIndex((row, at) => at > 0 && row.level === 1);
          const part = count < 0 ? below : below.slice(0, count);
          const order = (list) => list.map((pair) => pair.join()).sort();
          if (part.length >= flat.length) equal(order(part.slice(0, flat.length).map((row) => [row.level, Number(row.cells[main])])), order(flat), `${view}?${query}, below the first row`);
          else holds(part.length > 0, "rows below");
        }
        await go(page, `#/callers?levels=${levels}&cost=${main}&${query}`);
        const functions = print("callers", trace(name), "--cost", word, ...same).functions;
        const seen = await rows(page, "Functions, inclusive and self");
        equal(seen.map((row) => Number(row.cells[main])), functions.slice(0, seen.length).map((one) => of(one.inclusive, main)), `callers?${query}`);
        if (seen.length === functions.length) equal(shown(seen, "self "), table(functions, (one) => one.self), `self of callers?${query}`);
      }
    });
  }
  await check(`${name}: the list of most allocations is print's`, async () => {
    await go(page, "#/summary");
    const { lists } = print("summary", trace(name));
    const short = (text) => Number.parseFloat(text.replace(/[, ]/g, ""));
    const shown = (await page.locator('section[aria-label="Most allocations"] .entry-value').allInnerTexts()).map(short);
    equal(shown, lists.allocations.slice(0, shown.length).map((one) => one.value), "allocations");
  });
  await check(`${name}: the folded stacks have as many calls at each depth as print's flame`, async () => {
    for (const [levels, hide] of Object.entries(LEVELS)) {
      await go(page, `#/flame?levels=${levels}&cost=allocations`);
      await page.getByRole("button", { name: "Export" }).click();
      const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Folded stacks" }).click()]);
      const { readFileSync } = await import("node:fs");
      const sums = new Map();
      for (const line of readFileSync(await file.path(), "utf8").trim().split("\n")) {
        const at = line.lastIndexOf(" ");
        const depth = line.slice(0, at).split(";").length;
        sums.set(depth, (sums.get(depth) ?? 0) + Number(line.slice(at + 1)));
      }
      const wanted = new Map();
      for (const { stack, value } of print("flame", trace(name), "--cost", "allocations", "--collapse", "recursion", ...hide).folded) wanted.set(stack.length, (wanted.get(stack.length) ?? 0) + value);
      const sorted = (map) => [...map].sort((a, b) => a[0] - b[0]);
      equal(sorted(sums), sorted(wanted), `${levels}: calls by depth`);
    }
  });
  await page.close();
  server.child.kill();
}
