// What the engine answers for a page's address: the server's answers, and sums of them that are computed here, without the page's code.

/** The state that an address stands for. `borders` are the times that a report has. Other times are moved to the nearest one. */
export const read = (hash, borders) => {
  const [path, query = ""] = hash.replace(/^#\//, "").split("?");
  const words = new URLSearchParams(query);
  // The parts of the memory of a report are known at every instant, not only at the borders.
  const exact = new URLSearchParams(query);
  if (borders) snap(words, borders);
  const get = (name, otherwise) => words.get(name) ?? otherwise;
  const mode = words.has("at") ? "moment" : words.has("from") || words.has("to") ? "range" : "session";
  const isOther = /^\d+$/.test(get("compare", ""));
  return { view: path, words, exact, get, mode, file: Number(get("file", 0)), compare: words.get("compare"), isOther, normalise: isOther ? get("normalise", "no") : "no" };
};

const snap = (words, borders) => {
  const nearest = (time) => borders.reduce((best, border) => (Math.abs(border - time) < Math.abs(best - time) ? border : best), borders[0]);
  const begin = Number(words.get("from") ?? 0);
  for (const name of ["at", "from", "to"]) if (words.has(name) && words.get(name) !== "peak") words.set(name, nearest(Number(words.get(name))));
  const [from, to] = [Number(words.get("from") ?? 0), Number(words.get("to") ?? borders.at(-1))];
  if ((words.has("from") || words.has("to")) && from >= to) {
    // The range is too short to contain two borders, so it becomes the slice in which it begins.
    const slice = Math.min(borders.findLastIndex((border) => border <= begin), borders.length - 2);
    words.set("from", borders[slice]);
    words.set("to", borders[slice + 1]);
  }
  const [, moment] = /^@(\d+)$/.exec(words.get("compare") ?? "") ?? [];
  if (moment !== undefined) words.set("compare", `@${nearest(Number(moment))}`);
};

const FILTERS = ["include", "exclude", "thread", "size", "lifetime"];

/** The engine's question for a state. Without `timed`, it is about the whole session. Without `filtered`, it is about all blocks. */
export const question = (state, { timed = true, filtered = true } = {}) => {
  const words = new URLSearchParams();
  if (timed && state.words.has("at")) words.set("at", state.get("at"));
  else if (timed) for (const name of ["from", "to"]) if (state.words.has(name)) words.set(name, state.get(name));
  if (filtered) for (const name of FILTERS) for (const value of state.words.getAll(name)) words.append(name, value);
  if (filtered && state.get("suppressions") === "0") words.set("suppressions", "off");
  return words;
};

const SHORT_NS = 2 ** 20;
const base = (path) => path.slice(path.lastIndexOf("/") + 1);

/** The views that a report can compute for any range and filter. All other views of a report are about the whole session, and say so. */
const RANGED = ["profile", "stacks", "status"];

export class Engine {
  constructor(server, isReport = false) {
    this.server = server;
    this.isReport = isReport;
    /** The domain whose blocks the page shows. */
    this.domain = "malloc";
    this.known = new Map();
  }

  async ask(view, trace, words = new URLSearchParams(), more = {}) {
    const asked = this.isReport && !RANGED.includes(view) ? [] : words;
    const domain = this.domain === "custom" ? [["domain", "custom"]] : [];
    const all = new URLSearchParams([["trace", trace], ...asked, ...domain, ...Object.entries(more)]);
    const address = `${this.server.origin}/api/${view}?${all}`;
    if (!this.known.has(address)) {
      if (this.known.size > 400) this.known.delete(this.known.keys().next().value);
      const answer = fetch(address, { headers: { cookie: `heaptrack_${this.server.port}=${this.server.token}` } }).then((response) => response.json());
      this.known.set(address, answer);
    }
    const answer = await this.known.get(address);
    if (answer.error) throw new Error(`${view}?${all}: ${answer.error}`);
    return answer;
  }

  /** The stacks of a trace: levels by name, innermost first, and the blamed level. */
  async stacks(trace) {
    const answer = await this.ask("stacks", trace);
    if (!answer.list) {
      const { strings, levels, nodes, stacks } = answer;
      const text = (index) => (index === null || index === undefined ? null : strings[index]);
      const level = (id) => ({ function: text(levels.function[id]), file: text(levels.file[id]), line: levels.line[id], module: text(levels.module[id]), offset: levels.offset[id], class: levels.class[id] });
      answer.list = stacks.node.map((leaf, stack) => {
        const path = [];
        for (let node = leaf; node > 0; node = nodes.parent[node]) if (nodes.level[node] >= 0) path.push(level(nodes.level[node]));
        const blamed = stacks.blamed[stack] >= 0 ? level(nodes.level[stacks.blamed[stack]]) : path[0];
        return { path, blamed, isOwn: stacks.blamed[stack] >= 0, isSuppressed: (stacks.suppressed?.[stack] ?? -1) >= 0 };
      });
    }
    return answer.list;
  }

  /** The rows of one trace: a stack and its costs, with derived costs. */
  async rows(trace, words) {
    const answer = await this.ask("profile", trace, words);
    if (!answer.rows) {
      const list = await this.stacks(trace);
      const isOn = words.get("suppressions") !== "off";
      const names = Object.keys(answer).filter((name) => Array.isArray(answer[name]) && name !== "stack");
      answer.rows = answer.stack.map((stack, index) => {
        const costs = Object.fromEntries(names.map((name) => [name, answer[name][index]]));
        const isLeak = !(isOn && list[stack].isSuppressed);
        return { ...list[stack], stack, costs: { ...costs, leaked_bytes: isLeak ? costs.live_bytes : 0, leaked_allocations: isLeak ? costs.live_allocations : 0 } };
      });
    }
    return answer.rows;
  }

  /** Both sides of a comparison, now and before: rows of costs, totals, range, and the factor by which the costs of before are multiplied. */
  async sides(state) {
    const words = question(state);
    const now = await this.ask("profile", state.file, words);
    const rows = await this.rows(state.file, words);
    if (state.compare === null) return { now, rows, before: undefined, baseRows: [], factor: () => 1 };
    const past = state.isOther ? words : new URLSearchParams([...question(state, { timed: false }), ["at", state.compare.slice(1)]]);
    const other = state.isOther ? Number(state.compare) : state.file;
    const before = await this.ask("profile", other, past);
    return { now, rows, before, baseRows: await this.rows(other, past), factor: factorOf(state.normalise, now, before) };
  }

  /** All instants at which the parts of the memory were measured, and the one that the state asks for: the last one up to a moment, otherwise the highest one. */
  async memory(state) {
    const all = await this.ask("memory", state.file);
    const [at, from, to] = ["at", "from", "to"].map((name) => state.exact.get(name));
    const until = at === "peak" ? (await this.ask("profile", state.file)).totals.peak_time_ns : Number(at ?? to ?? Number.POSITIVE_INFINITY);
    const within = all.instants.filter(({ time_ns }) => time_ns <= until && time_ns >= (at === null ? Number(from ?? 0) : 0));
    const highest = Math.max(...within.map(({ rss_bytes }) => rss_bytes));
    return { ...all, shown: at === null ? within.find(({ rss_bytes }) => rss_bytes === highest) : within.at(-1) };
  }

  /** The status of a trace. */
  async trace(number) {
    return (await this.ask("status", number)).traces[number];
  }

  /** Waits until the trace is loaded for this domain. The server loads blocks of custom allocators when they are first requested. */
  async ready(number) {
    while (!["ready", "failed"].includes((await this.trace(number)).state)) {
      this.known.clear();
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** Whether only the user's own levels are shown: because the address says so, or because at least half of the allocations and live blocks have such levels. */
  async isMine(state) {
    const levels = state.get("levels", "auto");
    if (levels !== "auto") return levels === "mine";
    const rows = await this.rows(state.file, new URLSearchParams());
    const sum = (list) => list.reduce((all, { costs }) => all + costs.allocations + costs.live_allocations, 0);
    return sum(rows) === 0 || sum(rows.filter(({ isOwn }) => isOwn)) >= sum(rows) / 2;
  }

  async shortLived(state) {
    const { to, deallocations } = await this.ask("lifetimes", state.file, question(state));
    return deallocations.reduce((sum, count, index) => (to[index] < SHORT_NS ? sum + count : sum), 0);
  }
}

const length = ({ range }) => range.to_ns - range.from_ns;
const calls = ({ totals }) => totals.allocations || totals.live_allocations;
const ratio = (a, b) => (a > 0 && b > 0 ? a / b : 1);
const factorOf = (how, now, before) => (cost) => {
  if (how === "second") return ratio(length(now), length(before));
  if (how === "allocation") return ratio(calls(now), calls(before));
  return how === "share" ? ratio(now.totals[cost], before.totals[cost]) : 1;
};

/** Computes a cost from sums, as docs/views.md defines it. */
export const costOf = (sums, cost) => {
  const of = (name) => sums[name] ?? 0;
  switch (cost) {
    case "growth_bytes":
      return of("live_bytes") - of("base_bytes");
    case "average":
      return of("allocations") > 0 ? of("allocated_bytes") / of("allocations") : 0;
    case "mean_lifetime":
      return of("deallocations") > 0 ? of("lifetime_ns") / of("deallocations") : 0;
    case "kept_ratio":
      return of("allocations") > 0 ? of("leaked_allocations") / of("allocations") : 0;
    default:
      return of(cost);
  }
};

export const add = (to, costs) => {
  for (const [name, amount] of Object.entries(costs)) if (!name.startsWith("own_") && name !== "size_max") to[name] = (to[name] ?? 0) + amount;
  return to;
};

/** Groups of rows by a key, each with its sums now and before. */
export const grouped = ({ rows, baseRows, factor }, keyOf) => {
  const groups = new Map();
  const side = (list, which) => {
    for (const row of list) {
      for (const [key, label] of keyOf(row)) {
        const group = groups.get(key) ?? { key, label, place: placeOf(row.blamed), now: {}, before: {}, largest: { now: 0, before: 0 } };
        groups.set(key, group);
        add(group[which], row.costs);
        group.largest[which] = Math.max(group.largest[which], row.costs.own_peak_bytes ?? 0);
      }
    }
  };
  side(rows, "now");
  side(baseRows, "before");
  for (const group of groups.values()) for (const cost of Object.keys(group.before)) group.before[cost] *= factor(cost);
  return [...groups.values()];
};

/** The key that equal levels share. Between two traces, lines and folders of modules are ignored, and all code without a name is one level per module. */
export const keyOf = (level, merge, isOther) => {
  if (!level) return "nothing";
  const module = isOther ? base(level.module ?? "") : level.module;
  if (merge === "module" || merge === "namespace") return merge === "namespace" && level.function?.includes("::") ? level.function.slice(0, level.function.lastIndexOf("::")) : `${module}`;
  if (isOther) return level.function === null ? `${module}` : `${level.function}`;
  const own = `${level.function ?? level.offset}|${module}`;
  return merge === "line" ? `${own}|${level.file}:${level.line}` : own;
};

const placeOf = (level) => (level?.file ? (level.line ? `${level.file}:${level.line}` : level.file) : "");
export const labelOf = (level) => level?.function ?? (level?.module ? `${base(level.module)}+0x${(level.offset ?? 0).toString(16)}` : "[outside your code]");

/** The name of the row of a level, without the parts that `keyOf` ignores: the folder of a module and, between two traces, the line. */
export const rowName = (level, { merge, isOther }) => {
  if (merge === "module") return level?.module ? base(level.module) : "[no module]";
  if (merge === "namespace") return level?.module || level?.function?.includes("::") ? base(keyOf(level, merge, isOther)) : labelOf(undefined);
  const name = isOther && level?.module && level.function === null ? base(level.module) : labelOf(level);
  if (merge !== "line" || isOther) return name;
  return `${name}  ${base(placeOf(level)) || base(level?.module ?? "")}`;
};
/** The same part of the name that a row shows. */
export const readName = (text, { merge, isOther }) => {
  const [name] = text.split("\t");
  if (merge === "module" || merge === "namespace") return base(name);
  return merge === "line" && isOther ? name.split("  ")[0] : name;
};

/** The levels of a stack that are shown, innermost first. */
export const shown = (path, isMine) => {
  const list = isMine ? path.filter((level) => level.class === "program" || level.class === null) : path;
  return list.length > 0 ? list : [undefined];
};

/** Groups by the blamed line, and between two traces by the blamed function. */
export const byBlame = (sides, isOther) => grouped(sides, ({ blamed }) => (blamed ? [[keyOf(blamed, "line", isOther), labelOf(blamed)]] : []));
export const byFunction = (sides) => grouped(sides, ({ blamed }) => (blamed ? [[`${blamed.function} ${blamed.module}`, blamed.function]] : []));
/** Groups by the innermost or the outermost level that is shown. Their labels are the names of rows. */
export const byEnd = (sides, look, end) =>
  grouped(sides, ({ path }) => {
    const level = shown(path, look.isMine).at(end);
    return [[keyOf(level, look.merge, look.isOther), rowName(level, look)]];
  });
/** Groups by every function on a stack, each counted once per stack. Their labels are the names of rows. */
export const byLevel = (sides, look) =>
  grouped(sides, ({ path }) => {
    const found = new Map(shown(path, look.isMine).map((level) => [keyOf(level, look.merge, look.isOther), rowName(level, look)]));
    return [...found];
  });
