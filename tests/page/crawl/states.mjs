// Random states of the page, as addresses made from a seed.

/** Numbers from a seed: mulberry32. */
export const chance = (seed) => {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  return {
    is: (share) => next() < share,
    below: (count) => Math.floor(next() * count),
    of: (list) => list[Math.floor(next() * list.length)],
  };
};

const VIEWS = ["summary", "flame", "bottom-up", "top-down", "callers", "consumed", "allocations", "temporary", "sizes", "lifetimes", "leaks", "memory", "threads", "source"];
const COSTS = ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes", "live_bytes", "growth_bytes", "kept_bytes", "mean_lifetime", "average", "deallocations", "live_allocations", "kept_ratio"];
const SIZES = ["64..64", "0..999", "1000..", "32..63", "40000..50000", "262144..524287"];
const LIVES = ["..1000000", "1000000..", "..131071", "5000000..40000000"];

/** `runtime` is the length of each trace in nanoseconds. `subject` says what can be asked (subjects.mjs). */
export const randomState = (random, runtime, { patterns, functions, custom, isReport }) => {
  const words = new URLSearchParams();
  const set = (name, value) => words.append(name, String(value));
  const file = !isReport && random.is(0.3) ? 1 : 0;
  if (file === 1) set("file", 1);
  if (random.is(custom)) set("domain", "custom");
  // Most things happen early. Some times are beyond the end, because a link may come from a longer run.
  const time = () => random.below(Math.floor(runtime[file] * (random.is(0.7) ? 0.25 : 1.02)));
  let isMoment = false;
  if (random.is(0.3)) {
    isMoment = true;
    set("at", random.is(0.3) ? "peak" : time());
  } else if (random.is(0.45)) {
    const [from, to] = [time(), time()].sort((a, b) => a - b);
    if (!random.is(0.1)) set("from", from);
    if (!random.is(0.1)) set("to", to);
  }
  if (random.is(0.2)) set("include", random.of(patterns));
  if (random.is(0.1)) set("exclude", random.of(patterns));
  if (!isReport && random.is(0.1)) set("thread", random.below(3));
  if (!isReport && random.is(0.08)) set("size", random.of(SIZES));
  if (!isReport && random.is(0.08)) set("lifetime", random.of(LIVES));
  if (random.is(0.05)) set("suppressions", 0);
  if (random.is(0.5)) set("levels", random.of(["mine", "all"]));
  if (random.is(0.3)) set("merge", random.of(["line", "module", "namespace"]));
  if (random.is(0.6)) set("cost", random.of(COSTS));
  if (random.is(0.2)) set("sort", random.of([...COSTS, "name"]));
  if (random.is(0.1)) set("ascending", 1);
  if (random.is(0.1)) set("full", 1);
  if (!isReport && random.is(0.2)) {
    set("compare", 1 - file);
    if (random.is(0.25)) set("normalise", random.of(["second", "allocation", "share"]));
  } else if (isMoment && random.is(0.3)) set("compare", random.is(0.3) ? "@peak" : `@${time()}`);
  if (random.is(0.4)) set("chart", random.of(["live", "rate", "rss", "threads"]));
  if (random.is(0.1)) {
    const from = time();
    set("zoomFrom", from);
    set("zoomTo", from + 1_000_000 + random.below(20_000_000));
  }
  if (random.is(0.2)) set("bands", random.below(12));
  for (const name of ["cumulative", "log", "up"]) if (random.is(0.2)) set(name, 1);
  for (const name of ["detail", "total", "legend", "recursion", "icicle"]) if (random.is(0.1)) set(name, 0);
  if (random.is(0.4)) set("measure", random.of(["allocations", "allocated_bytes", "peak_bytes", "live_bytes"]));
  if (random.is(0.1)) set("order", random.of(["rss_bytes", "pss_bytes", "kind", "name"]));
  if (random.is(0.05)) set("reversed", 1);
  if (random.is(0.3)) set("threshold", random.of([0, 1, 20]));
  const view = random.of(VIEWS);
  if (view === "callers" && random.is(0.8)) set("fn", random.of(functions));
  return `#/${view}?${words}`;
};
