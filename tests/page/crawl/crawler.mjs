// The crawl itself: goes from one random state to the next and checks each.
import { about, contradictions } from "./checks.mjs";
import { Engine, read } from "./engine.mjs";
import { pick } from "./pick.mjs";
import { seen } from "./seen.mjs";
import { chance, randomState } from "./states.mjs";
import { SUBJECTS } from "./subjects.mjs";

/** A screen is taken to be finished after this many turns of the event loop without a request. */
const QUIET = 8;
/** The crawled page is not displayed, so it need not wait for the screen. Callbacks for the next frame run at once. */
export const withoutFrames = () => {
  window.requestAnimationFrame = (run) => setTimeout(() => run(performance.now()));
  window.cancelAnimationFrame = (handle) => clearTimeout(handle);
};
/** The page is reloaded after this many states, so that a state does not depend on all earlier ones. */
const RELOAD = 25;
/** All columns. They are shown after every second reload. */
const COLUMNS = {
  session: ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes", "leaked_allocations", "peak_allocations", "deallocations", "freed_bytes", "average", "mean_lifetime", "kept_ratio"],
  range: ["peak_bytes", "growth_bytes", "live_bytes", "kept_bytes", "allocations", "temporary", "allocated_bytes", "base_bytes", "live_allocations", "kept_allocations", "peak_allocations", "deallocations", "freed_bytes", "average", "mean_lifetime"],
};
const chooseColumns = (page, shape) =>
  page.evaluate((text) => {
    for (const view of ["bottom-up", "top-down", "callers"]) localStorage.setItem(`heaptrack.shape.${view}`, text);
  }, JSON.stringify(shape));

const settle = (page) =>
  page.evaluate(
    (wanted) =>
      new Promise((done) => {
        let count = 0;
        const look = () => {
          count = window.heaptrackWaiting() === 0 && !document.querySelector(".busy") ? count + 1 : 0;
          if (count > wanted) done();
          else setTimeout(look);
        };
        look();
      }),
    QUIET,
  );
/** Waits longer than the page waits before it sends slow requests (`PATIENCE` in crates/web/page/src/ui/raw.ts). */
const wait = (page) => page.waitForTimeout(280).then(() => settle(page));

/** Checks one screen after another. The selection stays until the file or the domain changes. It is hidden while another trace is the base than when it was made. */
class Crawler {
  constructor(page, server, { isReport }) {
    this.page = page;
    this.engine = new Engine(server, isReport);
    this.wrong = [];
    this.step = 0;
    this.forget();
  }

  forget() {
    [this.picked, this.subject, this.colours] = [undefined, "0 malloc", new Map()];
  }

  async look() {
    this.step += 1;
    const screen = await this.page.evaluate(seen);
    const asked = read(screen.hash, this.borders);
    this.engine.domain = asked.get("domain", "malloc");
    const context = await about(this.engine, asked);
    const { state } = context;
    const subject = `${state.file} ${this.engine.domain}`;
    if (subject !== this.subject) this.picked = undefined;
    this.subject = subject;
    const isShown = this.picked?.between === (state.isOther ? state.compare : "");
    const found = await contradictions(screen, context, isShown ? this.picked : undefined, this.colours);
    for (const sentence of new Set(found)) this.wrong.push(`state ${this.step}: ${screen.hash}\n    ${sentence}`);
    return context;
  }

  async click(context, random) {
    const next = await pick(this.page, context, random);
    if (!next) return;
    await settle(this.page);
    this.picked = next.isUnknown ? undefined : next;
    if (next.isUnknown || random.is(0.1)) {
      await this.page.keyboard.press("Escape");
      this.picked = undefined;
      await settle(this.page);
    }
    await this.look();
  }
}

/** The number of time slices in a report. */
const SLICES = 256;

/** Returns the contradictions and the number of visited states. Ends after `states`, or when `most` contradictions are found. `server` serves the traces of the
 * subject, even if the page is a report. `reload` loads the page again. */
export const crawl = async (page, server, { seed, states, most, subject = SUBJECTS.screens, reload = () => page.reload() }) => {
  const random = chance(seed);
  const crawler = new Crawler(page, server, subject);
  const { engine } = crawler;
  await settle(page);
  for (const domain of subject.custom > 0 ? ["custom", "malloc"] : ["malloc"]) {
    engine.domain = domain;
    for (const number of subject.traces.keys()) await engine.ready(number);
  }
  const runtime = await Promise.all(subject.traces.map(async (_, number) => (await engine.trace(number)).session.runtime_ns));
  if (subject.isReport) {
    const { range } = await engine.ask("timeline", 0);
    crawler.borders = Array.from({ length: SLICES + 1 }, (_, slice) => Math.floor((range.to_ns * slice) / SLICES));
  }
  let [reloaded, isWide] = [0, false];
  while (crawler.step < states && crawler.wrong.length < most) {
    if (crawler.step - reloaded >= RELOAD) {
      isWide = !isWide;
      await chooseColumns(page, isWide ? COLUMNS : {});
      await reload();
      crawler.forget();
      reloaded = crawler.step;
    }
    if (random.is(0.03)) await page.emulateMedia({ colorScheme: random.of(["light", "dark"]) });
    await page.evaluate((address) => {
      location.hash = address;
    }, randomState(random, runtime, subject));
    await settle(page);
    if (random.is(0.05)) await wait(page);
    const context = await crawler.look();
    if (random.is(0.3)) await crawler.click(context, random);
  }
  return { wrong: crawler.wrong, states: crawler.step };
};

export const isSoak = process.env.HEAPTRACK_SOAK === "1";
/** `make test` visits the same states every time, and a soak visits new ones. HEAPTRACK_SEED repeats a run. */
export const seed = Number(process.env.HEAPTRACK_SEED ?? (isSoak ? Date.now() % 1_000_000_007 : 18));
