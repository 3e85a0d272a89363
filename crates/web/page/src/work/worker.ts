// The worker: holds stacks and costs, and answers what the page wants to draw. The page's own thread never sees more than it shows.
import { SUMS, WIDTH, value } from "../costs";
import { flame } from "./flame";
import { type Function, functions, neighbours } from "./functions";
import { type Blamed, blame, dearest, ranked } from "./lists";
import { type Columns, type Profile, type ProfileAnswer, read, total } from "./profile";
import type { Ask, Entry, Message, Op, Overview, Requests, Row, Selection, Stack, Totals, TreeRow } from "./protocol";
import { type Answer, Refusal, type Source, open } from "./source";
import { join } from "./join";
import { type Level, type Look, Stacks, type StacksAnswer, keyName, matcher } from "./stacks";
import { type Direction, type Node, type Sort, Tree, expandAll, expandChain, expandHot, find, visible } from "./tree";

/** Rows that a fully expanded tree may have. */
const MOST_ROWS = 500_000;
/** Answers that are kept: going back and forth asks for the same. */
const KEPT = 12;

let source: Source | undefined;

class Kept<T> {
  private readonly map = new Map<string, Promise<T>>();
  get(name: string, make: () => Promise<T>): Promise<T> {
    let found = this.map.get(name);
    if (found) this.map.delete(name);
    else {
      found = make();
      found.catch(() => this.map.delete(name));
    }
    this.map.set(name, found);
    for (const oldest of this.map.keys()) {
      if (this.map.size <= KEPT) break;
      this.map.delete(oldest);
    }
    return found;
  }
}

type Data = { stacks: Stacks; profile: Profile; answer: ProfileAnswer };
const allStacks = new Kept<Stacks>();
const allData = new Kept<Data>();
const allBlamed = new Kept<Blamed[]>();
const allFunctions = new Kept<Function[]>();

const from = (): Source => {
  if (!source) throw new Refusal("Nothing is open yet.");
  return source;
};

const stacksOf = (trace: number, version: number): Promise<Stacks> =>
  allStacks.get(`${trace} ${version}`, async () => new Stacks((await from().get("stacks", trace, "")) as unknown as StacksAnswer));

const named = ({ trace, query, version }: Ask): string => `${trace} ${version} ${query}`;

const dataOf = (ask: Ask): Promise<Data> =>
  allData.get(named(ask), async () => {
    const words = new URLSearchParams(ask.query);
    const [stacks, answer] = await (isOtherTrace(words) ? both(ask, words) : one(ask));
    const suppressed = words.get("suppressions") === "off" ? undefined : stacks.answer.stacks.suppressed;
    // A server has filtered already; a report leaves it to us.
    const keep = from().isReport ? stacks.matching(words.getAll("include"), words.getAll("exclude")) : undefined;
    return { stacks, answer: answer as ProfileAnswer, profile: read(answer as ProfileAnswer, suppressed, keep) };
  });

const isOtherTrace = (words: URLSearchParams): boolean => /^\d+$/.test(words.get("compare") ?? "");

const one = (ask: Ask): Promise<[Stacks, Answer]> => Promise.all([stacksOf(ask.trace, ask.version), from().get("profile", ask.trace, ask.query)]);

/** This trace and another one, asked the same. */
const both = async (ask: Ask, words: URLSearchParams): Promise<[Stacks, Answer]> => {
  const other = Number(words.get("compare"));
  const same = new URLSearchParams(words);
  same.delete("compare");
  await ready(other);
  const [stacks, base, now, before] = await Promise.all([
    stacksOf(ask.trace, ask.version),
    stacksOf(other, 0),
    from().get("profile", ask.trace, same.toString()) as Promise<ProfileAnswer>,
    from().get("profile", other, same.toString()) as Promise<ProfileAnswer>,
  ]);
  const columns = (answer: ProfileAnswer): Columns => (answer.profile ?? answer) as Columns;
  const moved = { ...columns(before), stack: columns(before).stack.map((stack) => stack + stacks.count) } as Columns;
  return [new Stacks(join(stacks.answer, base.answer), true), { ...now, base: moved, base_totals: before.totals }];
};

/** A trace that lies beside is loaded when it is first asked for. */
const ready = async (trace: number): Promise<void> => {
  for (;;) {
    const status = (await from().get("status", trace, "")) as { traces: ({ state: string; error: string | null } | null)[] };
    const found = status.traces[trace];
    if (found?.state === "failed") throw new Refusal(found.error ?? "The trace to compare with cannot be read.");
    if (found?.state === "ready" || found?.state === "live") return;
    if (!found) throw new Refusal("There is no such trace to compare with.");
    await new Promise((done) => setTimeout(done, 100));
  }
};

const totalsOf = ({ profile, answer }: Data): Totals => ({
  sums: total(profile.sums),
  base: profile.base && total(profile.base),
  answer: answer.totals,
  baseAnswer: answer.base_totals as Record<string, number> | undefined,
  from_ns: answer.range?.from_ns ?? 0,
  to_ns: answer.range?.to_ns ?? 0,
});

const overview = async ({ ask, costs, limit }: Requests["overview"]["args"]): Promise<Overview> => {
  const data = await dataOf(ask);
  const { stacks, profile } = data;
  const list = await allBlamed.get(named(ask), async () => blame(profile, stacks));
  const lists: Record<string, Entry[]> = {};
  const counts: Record<string, number> = {};
  for (const cost of costs) {
    const order = ranked(list, cost);
    counts[cost] = order.length;
    lists[cost] = order.slice(0, limit).map((entry) => {
      const row = dearest(profile, entry.rows, cost);
      const via = row === undefined ? [] : inside(stacks, profile.stack[row] ?? 0);
      return { level: stacks.level(entry.level), key: entry.key, sums: entry.sums, base: entry.base, via, stacks: entry.rows.length };
    });
  }
  let mine = 0;
  let all = 0;
  for (let row = 0; row < profile.stack.length; row++) {
    const amount = value(profile.sums, "allocations", row * WIDTH) + value(profile.sums, "live_allocations", row * WIDTH);
    all += amount;
    if (stacks.blamed(profile.stack[row] ?? 0) !== undefined) mine += amount;
  }
  return { totals: totalsOf(data), lists, counts, mine: all > 0 ? mine / all : 1 };
};

/** The levels that the blamed one called, innermost first. */
const inside = (stacks: Stacks, stack: number): Level[] => {
  const blamed = stacks.blamed(stack);
  const levels = stacks.whole(stack);
  const end = blamed === undefined ? 0 : levels.indexOf(blamed);
  return levels.slice(0, Math.max(0, end)).map((id) => stacks.level(id));
};

// One tree per direction is looked at; what is expanded in it outlives changes of its costs.
type Shown = { tree: Tree; name: string; sort: Sort; stacks: Stacks; nodes: Node[]; indents: number[]; paths: string[] };
const shown = new Map<Direction, Shown>();
const expanded = new Map<string, Set<string>>();
const expandedOf = (name: string): Set<string> => {
  let set = expanded.get(name);
  if (!set) {
    set = new Set();
    expanded.set(name, set);
  }
  return set;
};
const lookName = (look: Look): string => `${look.levels} ${look.merge} ${look.recursion}`;

const allTrees = new Kept<Tree>();
const treeOf = (ask: Ask, look: Look, direction: Direction): Promise<Tree> =>
  allTrees.get(`${named(ask)} ${lookName(look)} ${direction}`, async () => {
    const { stacks, profile } = await dataOf(ask);
    const label = (level: number): string => {
      const { short, function: full, module } = stacks.level(level);
      return short ?? full ?? module ?? "";
    };
    return new Tree(profile, stacks.look(look), direction, label);
  });

const tree = async ({ ask, look, direction, sort }: Requests["tree"]["args"]): Promise<Requests["tree"]["result"]> => {
  const data = await dataOf(ask);
  const made = await treeOf(ask, look, direction);
  const name = `${ask.trace} ${direction} ${lookName(look)}`;
  const set = expandedOf(name);
  shown.set(direction, { tree: made, name, sort, stacks: data.stacks, ...visible(made, sort, set, MOST_ROWS) });
  return { count: shown.get(direction)?.nodes.length ?? 0, totals: totalsOf(data) };
};

const window = ({ direction, from: first, to }: Requests["window"]["args"]): TreeRow[] => {
  const view = shown.get(direction);
  if (!view) return [];
  const set = expandedOf(view.name);
  return view.nodes.slice(first, to).map((node, offset) => {
    const index = first + offset;
    const path = view.paths[index] ?? "";
    const siblings = view.tree.children(node.parent ?? view.tree.root, view.sort);
    return {
      level: view.stacks.level(node.level),
      key: node.key,
      sums: node.sums,
      base: node.base,
      // Bottom-up a stack ends at its outermost level, and nobody asks what ends there.
      ...(direction === "top-down" ? { self: view.tree.self(node) } : {}),
      path,
      indent: view.indents[index] ?? 0,
      depth: node.depth,
      expandable: view.tree.hasChildren(node),
      expanded: set.has(path),
      siblings: siblings.length,
      place: siblings.indexOf(node) + 1,
    };
  });
};

const toggle = ({ direction, path, how }: Requests["toggle"]["args"]): { count: number; index: number } => {
  const view = shown.get(direction);
  if (!view) return { count: 0, index: -1 };
  const { tree: made, sort } = view;
  const set = expandedOf(view.name);
  let target = path;
  const node = find(made, path, sort);
  if (node) {
    if (how === "close") set.delete(path);
    else if (how === "none") {
      for (const open of [...set]) if (path === "" || open === path || open.startsWith(`${path}.`)) set.delete(open);
    } else if (how === "all") expandAll(made, node, path, sort, set, MOST_ROWS);
    else if (how === "hot") target = expandHot(made, node, path, sort, set);
    else expandChain(made, node, path, sort, set);
  }
  Object.assign(view, visible(made, sort, set, MOST_ROWS));
  return { count: view.nodes.length, index: view.paths.indexOf(target) };
};

const place = ({ direction, path }: Requests["place"]["args"]): number => shown.get(direction)?.paths.indexOf(path) ?? -1;

const flameOf = async ({ ask, look, direction, cost, threshold }: Requests["flame"]["args"]): Promise<Requests["flame"]["result"]> => {
  const { stacks } = await dataOf(ask);
  const made = await treeOf(ask, look, direction);
  const drawn = flame(made, cost, threshold);
  const labels = new Map<number, Level>();
  for (let index = 1; index < drawn.count; index++) {
    const key = drawn.key[index] ?? 0;
    if (!labels.has(key)) labels.set(key, stacks.level(drawn.level[index] ?? 0));
  }
  return { flame: drawn, labels, total: value(made.root.sums, cost) };
};

let table: { functions: Function[]; stacks: Stacks } | undefined;

const functionsOf = (ask: Ask, look: Look): Promise<Function[]> =>
  allFunctions.get(`${named(ask)} ${lookName(look)}`, async () => {
    const { stacks, profile } = await dataOf(ask);
    return functions(profile, stacks.look(look));
  });

const functionTable = async ({ ask, look, sort, self, filter }: Requests["functions"]["args"]): Promise<Requests["functions"]["result"]> => {
  const data = await dataOf(ask);
  const { stacks } = data;
  const test = filter ? matcher(filter) : undefined;
  const list = (await functionsOf(ask, look)).filter((entry) => !test || test(stacks.level(entry.level)));
  const sign = sort.ascending ? 1 : -1;
  const { cost } = sort;
  if (cost === "name") list.sort((a, b) => sign * label(stacks.level(a.level)).localeCompare(label(stacks.level(b.level))));
  else {
    const weight = (entry: Function): number => {
      const side = self ? entry.self : entry.inclusive;
      return side.base ? Math.abs(value(side.sums, cost) - value(side.base, cost)) : value(side.sums, cost);
    };
    const both = (entry: Function): number => value((self ? entry.inclusive : entry.self).sums, cost);
    list.sort((a, b) => sign * (weight(a) - weight(b)) || both(b) - both(a) || a.key - b.key);
  }
  table = { functions: list, stacks };
  return { count: list.length, totals: totalsOf(data) };
};

const label = (level: Level): string => level.short ?? level.function ?? level.module ?? "";

const functionRow = (stacks: Stacks, entry: Function): Row => ({
  level: stacks.level(entry.level),
  key: entry.key,
  sums: entry.inclusive.sums,
  base: entry.inclusive.base,
  self: entry.self.sums,
});

const functionWindow = ({ from: first, to }: Requests["functionWindow"]["args"]): Row[] => {
  const shownTable = table;
  return shownTable ? shownTable.functions.slice(first, to).map((entry) => functionRow(shownTable.stacks, entry)) : [];
};

const around = async ({ ask, look, key, cost }: Requests["neighbours"]["args"]): Promise<Requests["neighbours"]["result"]> => {
  const { stacks, profile } = await dataOf(ask);
  const subject = (await functionsOf(ask, look)).find((entry) => entry.key === key);
  if (!subject) return undefined;
  const found = neighbours(profile, stacks.look(look), key, (id) => stacks.level(id));
  const order = (list: Function[]): Row[] =>
    list.sort((a, b) => value(b.inclusive.sums, cost) - value(a.inclusive.sums, cost) || a.key - b.key).map((entry) => functionRow(stacks, entry));
  const lines = found.lines.sort((a, b) => value(b.inclusive.sums, cost) - value(a.inclusive.sums, cost) || a.line - b.line);
  return {
    subject: functionRow(stacks, subject),
    callers: order(found.callers),
    callees: order(found.callees),
    lines: lines.map(({ file, line, inclusive, self }) => ({ file, line, sums: inclusive.sums, self: self.sums })),
  };
};

/** A function by its name; a shorter one is good enough when it is the only one. */
const keyOf = async ({ ask, look, name }: Requests["key"]["args"]): Promise<number | undefined> => {
  const { stacks } = await dataOf(ask);
  const list = await functionsOf(ask, look);
  const exact = list.find((entry) => keyName(stacks.level(entry.level), look.merge) === name);
  return (exact ?? list.find((entry) => stacks.level(entry.level).function === name || stacks.level(entry.level).short === name))?.key;
};

const rowsOf = async (ask: Ask, look: Look, selection: Selection): Promise<number[]> => {
  const { stacks, profile } = await dataOf(ask);
  switch (selection.of) {
    case "tree": {
      const made = await treeOf(ask, look, selection.direction);
      return [...(find(made, selection.path, { cost: "peak_bytes", ascending: false })?.rows ?? [])];
    }
    case "function":
      return neighbours(profile, stacks.look(look), selection.key, (id) => stacks.level(id)).rows;
    case "blamed":
      return (await allBlamed.get(named(ask), async () => blame(profile, stacks))).find((entry) => entry.key === selection.key)?.rows ?? [];
    case "site":
      return [...profile.stack.keys()].filter((row) => profile.stack[row] === selection.stack);
    case "all":
      return [...profile.stack.keys()];
  }
};

const stackList = async ({ ask, look, selection, cost, from: first, to }: Requests["stacks"]["args"]): Promise<Requests["stacks"]["result"]> => {
  const { stacks, profile, answer } = await dataOf(ask);
  const rows = await rowsOf(ask, look, selection);
  const weight = (row: number): number =>
    profile.base
      ? Math.abs(value(profile.sums, cost, row * WIDTH) - value(profile.base, cost, row * WIDTH))
      : value(profile.sums, cost, row * WIDTH);
  rows.sort((a, b) => weight(b) - weight(a) || a - b);
  const sums = new Float64Array(WIDTH);
  for (const row of rows) for (let column = 0; column < WIDTH; column++) sums[column] = (sums[column] ?? 0) + (profile.sums[row * WIDTH + column] ?? 0);
  const columns = (answer.profile ?? answer) as unknown as Record<string, number[]>;
  const places = new Map((columns.stack ?? []).map((stack, index) => [stack, index]));
  const list: Stack[] = rows.slice(first, to).map((row) => {
    const stack = profile.stack[row] ?? 0;
    const levels = stacks.whole(stack);
    const index = places.get(stack) ?? -1;
    const blamed = stacks.blamed(stack);
    return {
      stack,
      sums: profile.sums.slice(row * WIDTH, (row + 1) * WIDTH),
      base: profile.base?.slice(row * WIDTH, (row + 1) * WIDTH),
      own: { bytes: columns.own_peak_bytes?.[index] ?? 0, time_ns: columns.own_peak_time_ns?.[index] ?? 0, largest: columns.size_max?.[index] ?? 0 },
      levels: levels.map((id) => stacks.level(id)),
      blamed: blamed === undefined ? -1 : levels.indexOf(blamed),
    };
  });
  return { count: rows.length, sums, stacks: list };
};

/** Before and after of every function itself, the largest difference first. */
const diff = async ({ ask, look, cost }: Requests["diff"]["args"]): Promise<Requests["diff"]["result"]> => {
  const data = await dataOf(ask);
  const { stacks } = data;
  const delta = (entry: Function): number => Math.abs(value(entry.self.sums, cost) - (entry.self.base ? value(entry.self.base, cost) : 0));
  const list = [...(await functionsOf(ask, look))].filter((entry) => delta(entry) > 0).sort((a, b) => delta(b) - delta(a) || a.key - b.key);
  const rows = list.slice(0, 2000).map((entry) => ({ ...functionRow(stacks, entry), sums: entry.self.sums, base: entry.self.base }));
  return { rows, totals: totalsOf(data) };
};

const text = async ({ ask, look, format, cost }: Requests["text"]["args"]): Promise<string> => {
  const { stacks, profile } = await dataOf(ask);
  if (format === "csv") {
    const quoted = (word: string): string => (/[",\n]/.test(word) ? `"${word.replaceAll('"', '""')}"` : word);
    const lines = [["function", "file", "line", "module", ...SUMS, ...SUMS.map((name) => `self_${name}`)].join(",")];
    for (const entry of await functionsOf(ask, look)) {
      const level = stacks.level(entry.level);
      const words = [level.function ?? "", level.file ?? "", String(level.line ?? ""), level.module ?? ""];
      lines.push([...words.map(quoted), ...entry.inclusive.sums, ...entry.self.sums].join(","));
    }
    return `${lines.join("\n")}\n`;
  }
  const list = [...profile.stack.keys()].map((row) => ({ row, amount: value(profile.sums, cost, row * WIDTH) })).filter(({ amount }) => amount !== 0);
  list.sort((a, b) => b.amount - a.amount || a.row - b.row);
  const paths = stacks.look(look);
  const namesOf = (row: number): Level[] => {
    const stack = profile.stack[row] ?? 0;
    return [...paths.levels.slice(paths.start[stack], paths.start[stack + 1])].map((id) => stacks.level(id));
  };
  if (format === "folded") {
    const clean = (word: string): string => word.replaceAll(";", ":").replaceAll("\n", " ");
    return `${list.map(({ row, amount }) => `${namesOf(row).map((level) => clean(label(level) || "[unknown]")).join(";")} ${amount}`).join("\n")}\n`;
  }
  const entries = list.map(({ row }) => ({
    costs: Object.fromEntries(SUMS.map((name, index) => [name, profile.sums[row * WIDTH + index]])),
    frames: namesOf(row).reverse(),
  }));
  return `${JSON.stringify({ query: ask.query, cost, stacks: entries }, null, 1)}\n`;
};

const answers: { [O in Op]: (args: Requests[O]["args"]) => Promise<Requests[O]["result"]> | Requests[O]["result"] } = {
  raw: ({ view, trace, query }) => from().get(view, trace, query),
  overview,
  tree,
  window,
  toggle,
  place,
  flame: flameOf,
  functions: functionTable,
  functionWindow,
  neighbours: around,
  key: keyOf,
  stacks: stackList,
  diff,
  text,
};

self.onmessage = async ({ data }: MessageEvent<Message | { open: Parameters<typeof open>[0] }>) => {
  if ("open" in data) {
    source = open(data.open);
    return;
  }
  const { id, op, args } = data;
  try {
    const result = await (answers[op] as (args: unknown) => unknown)(args);
    self.postMessage({ id, result });
  } catch (error) {
    const sentence = error instanceof Refusal ? error.message : `The page made a mistake (${String(error)}). Please report it.`;
    self.postMessage({ id, error: sentence });
  }
};
