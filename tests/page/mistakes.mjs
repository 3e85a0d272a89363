// Tests the crawler: the page is built with a mistake in it, and the crawler must find the mistake. Also tests that rows with equal numbers are told apart.
//
// `make soak` tries all mistakes of `MISTAKES`, and `make test` one of them, which the seed selects.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { matched } from "./crawl/checks.mjs";
import { crawl, isSoak, seed, withoutFrames } from "./crawl/crawler.mjs";
import { check, equal, holds, replacePage, serve, trace, visit } from "./harness.mjs";

/** A description of the mistake, the file, the right code, and the mistaken code that replaces it. */
const MISTAKES = [
  ["an answer is kept although something else is asked", "store.ts", "[op, JSON.stringify(args)]", "[op, JSON.stringify(args).length % 7]"],
  ["leaks are judged at the chosen moment", "ui/leaks.tsx", 'useRaw("leaks", timeless(state))', 'useRaw("leaks", query(state))'],
  ["growth has shares of the total growth", "costs.ts", ' && cost !== "growth_bytes";', ";"],
  ["a view gives out colours of its own", "colours.ts", "const name = nameOf(level);", 'const name = nameOf(level) + location.hash.split("?")[0];'],
  ["1 kB is 1024 bytes", "units.ts", "number /= 1000;", "number /= 1024;"],
  ["details keep the numbers of when they were opened", "ui/detail.tsx", "const found = stacks.value;", "const found = useRef(stacks.value).current ??= stacks.value;"],
  ["the legend has the highest values of the slice, not those of the moment", "ui/timeline.tsx", "key === undefined ? 0 : (moment.byFunction.get(key) ?? 0)", "Math.max(0, ...drawing.bands.filter((band) => band.key === key).flatMap((band) => band.values))"],
  ["a change is written with the wrong sign", "ui/figures.tsx", "{signed(now(cost) - before(cost), kind)}", "{signed(before(cost) - now(cost), kind)}"],
  ["a mean life of nothing is a short one", "costs.ts", "return of === undefined || (costs[at(of)] ?? 0) > 0;", "return true;"],
  ["under a filter the peak is that of the whole process", "ui/timeline.tsx", "const peakValue = isPart ? (data.totals.peak_bytes ?? 0)", "const peakValue = isPart && !peak ? (data.totals.peak_bytes ?? 0)"],
  ["the parts of the highest instant are shown, whatever moment is selected", "ui/memory.tsx", "if (at !== undefined) {", "if (at !== undefined && highest === null) {"],
];
const IMPORTS = { "ui/leaks.tsx": ["import { timeless }", "import { query, timeless }"], "ui/detail.tsx": ["import { useState }", "import { useRef, useState }"] };
/** The crawler must find a mistake within this many states. */
const STATES = 400;

const source = fileURLToPath(new URL("../../crates/web/page", import.meta.url));
/** Builds a page with the mistake into a folder. */
const build = (folder, [what, file, right, mistaken]) => {
  for (const name of ["src", "build.mjs", "package.json", "tsconfig.json"]) cpSync(join(source, name), join(folder, name), { recursive: true });
  symlinkSync(join(source, "node_modules"), join(folder, "node_modules"));
  const path = join(folder, "src", file);
  const text = readFileSync(path, "utf8");
  equal(text.split(right).length, 2, `${what}: parts of ${file} before and after the code that is to be replaced`);
  writeFileSync(path, text.replace(right, mistaken).replace(...(IMPORTS[file] ?? ["", ""])));
  execFileSync("node", ["build.mjs", "dist"], { cwd: folder });
  return join(folder, "dist");
};

/** A row of a comparison in which nothing changed: its name, and its mean life as it is written. */
const unchanged = (name, life) => ({ cells: { name: { value: `${name}\tscreens.c:1`, text: name }, allocations: { value: "0", text: "0" }, mean_lifetime: { value: "0", text: life } } });
/** What the engine has for these rows. Each block of `hump` lived for 8.2 ms in both traces. No block of `cache` was freed. */
const UNCHANGED = [
  { label: "cache", now: {}, before: {} },
  { label: "hump", now: { deallocations: 40, lifetime_ns: 328_000_000 }, before: { deallocations: 40, lifetime_ns: 328_000_000 } },
];
const compared = (...rows) => matched({ label: "a tree", count: rows.length }, rows, UNCHANGED, (_, column) => (column === "name" ? undefined : 0), { isDiff: true });
await check("rows with equal numbers are told apart by their names", async () => {
  equal(compared(unchanged("cache", "–"), unchanged("hump", "< 0.1 ms")), [], "each as it is");
  equal(compared(unchanged("hump", "< 0.1 ms"), unchanged("cache", "–")), [], "in another order");
  equal(compared(unchanged("hump", "–"), unchanged("cache", "< 0.1 ms")).length, 2, "both are written wrongly");
  equal(compared(unchanged("cache", "–"), unchanged("burst", "< 0.1 ms")).length, 1, "a name that the engine does not have");
});

const chosen = process.env.MISTAKE === undefined ? (isSoak ? MISTAKES : [MISTAKES[seed % MISTAKES.length]]) : [MISTAKES[Number(process.env.MISTAKE)]];
console.log(`mistakes: HEAPTRACK_SEED=${seed}`);
const server = await serve([trace("screens"), trace("screens-before")]);
for (const mistake of chosen) {
  await check(`found: ${mistake[0]} (HEAPTRACK_SEED=${seed})`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "heaptrack-mistake-"));
    const restore = await replacePage(build(folder, mistake));
    try {
      const page = await visit(server.url, "", withoutFrames);
      const { wrong, states } = await crawl(page, server, { seed, states: STATES, most: 1 });
      page.problems.length = 0;
      await page.close();
      holds(wrong.length > 0, `not found in ${states} states`);
      console.log(`mistakes: ${mistake[0]}: ${wrong[0]}`);
    } finally {
      await restore();
      rmSync(folder, { recursive: true, force: true });
    }
  });
}
server.child.kill();
