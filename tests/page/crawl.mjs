// Visits random states of the page and finds screens that contradict the engine or themselves.
//
// Every number on the page has a name and its exact value (`data-number`, `data-value`). For each state the crawler asks the server about the page's own address,
// computes sums from the answers without the page's code, and compares everything that is visible. HEAPTRACK_SEED repeats a run, CRAWL_STATES sets its length.
//
// Every run records its traces anew, and some contradictions depend on them. So the traces of a failed crawl are kept beside the pictures. The message has the variables
// with which `node tests/page/run.mjs crawl` repeats it.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { crawl, isSoak, seed, withoutFrames } from "./crawl/crawler.mjs";
import { SUBJECTS, asReport } from "./crawl/subjects.mjs";
import { bin, check, holds, serve, shots, trace, traces, visit } from "./harness.mjs";

const STATES = Number(process.env.CRAWL_STATES ?? (isSoak ? 2000 : 200));
/** The other subjects get fewer states, because the page is the same and only its data are of another kind. */
const OTHERS = Number(process.env.CRAWL_STATES ?? (isSoak ? 500 : 40));

console.log(`crawl: HEAPTRACK_SEED=${seed}, ${STATES} states`);
const kept = join(shots, "traces");
const keep = (names) => {
  // They are there already if this is the repetition of a failed crawl.
  if (resolve(traces) === resolve(kept)) return;
  mkdirSync(kept, { recursive: true });
  for (const name of names) copyFileSync(trace(name), join(kept, `${name}.htz`));
};
/** Each subject as a page of a server, and as a report of its first trace without an engine, which is compared with a server for the same trace. */
const all = Object.entries(SUBJECTS).flatMap(([name, subject]) => [[name, subject], [`a report of ${name}`, asReport(subject)]]);
for (const [name, subject] of all) {
  if (process.env.CRAWL && !name.includes(process.env.CRAWL)) continue;
  const states = name === "screens" ? STATES : OTHERS;
  const server = await serve(subject.traces.map(trace));
  const report = join(traces, "crawled.html");
  if (subject.isReport) execFileSync(bin, ["report", "--summary-only", trace(subject.traces[0]), "-o", report], { stdio: "ignore" });
  const page = await visit(subject.isReport ? pathToFileURL(report).href : server.url, "", withoutFrames);
  await check(`${states} random states of ${name} without a contradiction (HEAPTRACK_SEED=${seed})`, async () => {
    const { wrong, states: seen } = await crawl(page, server, { seed, states, most: 12, subject });
    if (wrong.length > 0) keep(subject.traces);
    holds(wrong.length === 0, `${wrong.length} contradictions in ${seen} states (TRACES=${kept} HEAPTRACK_SEED=${seed} CRAWL_STATES=${states} CRAWL="${name}"):\n${wrong.join("\n")}`);
  });
  await page.close();
  server.child.kill();
}
