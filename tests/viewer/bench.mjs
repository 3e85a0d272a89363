// Measures how long a trace takes to open, and a range to be shown: the native page, the viewer and a report. Prints a table.
//
//   node bench.mjs TRACE     environment: HEAPTRACK_BIN; REPORT (optional), a report of the trace that is measured instead of a new one; BROWSER
//
// With BOUNDS=1 it fails if the viewer takes more than three times as long as the native page to open the trace, a range takes more than 300 ms (the median), or its
// processes have more than 600 MB. The same holds for a report.
//
// The browser is already running and has shown the page once. `opened` is the time from the command, the choice of the file or the address to the first numbers on
// the screen, and `memory` is the proportional set size of the browser's processes that run pages, for one page.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, browser, end, isFirefox, print, serve, settled } from "../page/harness.mjs";
import { viewer } from "./shared.mjs";

const ROUNDS = 3;
const trace = resolve(process.argv[2]);
const made = join(tmpdir(), `heaptrack-bench.${process.pid}.html`);
const report = resolve(process.env.REPORT ?? made);
if (report === made) execFileSync(bin, ["report", trace, "-o", report], { stdio: "ignore" });
const length = print("timeline", trace).range.to_ns;
const best = (list) => Math.round(Math.min(...list));

const isDrawn = () => {
  const lists = [...document.querySelectorAll(".summary .list")];
  const isFull = (list) => list.querySelector(".entry, .empty") !== null;
  return document.querySelectorAll(".figure").length >= 6 && document.querySelector(".timeline canvas") !== null && lists.length === 4 && lists.every(isFull);
};

/** The proportional set size of the processes of this browser that run pages, in MB. */
const memory = () => {
  let sum = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      if (!(isFirefox ? /-contentproc.* tab\0?$/ : /--type=renderer/).test(line)) continue;
      sum += Number(/^Pss: +(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))[1]) / 1e3;
    } catch {
      // It has ended.
    }
  }
  return Math.round(sum);
};

const ways = {
  native: async (page) => {
    const server = await serve([trace]);
    await page.goto(server.url);
    return () => server.child.kill();
  },
  viewer: async (page) => {
    await page.locator("input[type=file]").setInputFiles(trace);
    return () => undefined;
  },
  report: async (page) => {
    await page.goto(pathToFileURL(report).href);
    return () => undefined;
  },
};
const rows = [];
const measured = {};
const show = async (open) => {
  const page = await (await browser()).newPage();
  page.setDefaultTimeout(120_000);
  if (open === ways.viewer) {
    await page.goto(pathToFileURL(viewer).href);
    await page.waitForSelector("input[type=file]");
  }
  const started = performance.now();
  const close = await open(page);
  await page.waitForFunction(isDrawn);
  return { page, close, time: performance.now() - started };
};
for (const [name, open] of Object.entries(ways)) {
  const [opened, ranges] = [[], []];
  let most = 0;
  for (let round = 0; round <= ROUNDS; round++) {
    const { page, close, time } = await show(open);
    // The first round only warms up.
    if (round > 0) opened.push(time);
    await settled(page);
    await page.evaluate(() => (location.hash = "#/bottom-up"));
    await settled(page);
    for (let turn = 0; round > 0 && turn < 5; turn++) {
      const took = await page.evaluate(async ([from, to]) => {
        const shown = () => [document.querySelector(".figures")?.children[2]?.title, document.querySelector(".status-line")?.textContent];
        const before = shown();
        const start = performance.now();
        location.hash = `#/bottom-up?from=${from}&to=${to}`;
        do await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        while (shown().some((text, index) => text === before[index]) && performance.now() - start < 10_000);
        return performance.now() - start;
      }, [0.05 + turn * 0.011 + round * 0.002, 0.5 + turn * 0.029].map((share) => Math.round(length * share)));
      ranges.push(took);
      await settled(page);
    }
    most = Math.max(most, memory());
    await page.close();
    close();
  }
  measured[name] = { opened: best(opened), range: Math.round(ranges.toSorted((a, b) => a - b)[ranges.length >> 1]), memory: most };
  rows.push(`| ${name} | ${best(opened)} ms | ${best(ranges)} ms, median ${Math.round(ranges.toSorted((a, b) => a - b)[ranges.length >> 1])} ms, worst ${Math.round(Math.max(...ranges))} ms | ${most} MB |`);
}
console.log(`| ${(await browser()).browser()?.version() ?? ""} | opened | a range | memory |\n|---|---|---|---|\n${rows.join("\n")}`);
rmSync(made, { force: true });
if (process.env.BOUNDS) {
  const { native, ...others } = measured;
  for (const [name, { opened, range, memory }] of Object.entries(others)) {
    if (opened > native.opened * 3 || range > 300 || memory > 600) {
      console.error(`${name} is beyond its bounds`);
      process.exitCode = 1;
    }
  }
}
await end();
