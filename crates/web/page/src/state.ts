// The state of the page: one value, which is stored in the address after `#`.
//
// Receives: an address. Returns: the state, and the address and the queries for a state. Must hold: everything that decides which data is shown is in the
// state, so Back works and a link shows the same to other people. Values that equal those of `INITIAL` are not in the address.
import type { Cost, Mode } from "./costs";

export const VIEWS = [
  ["summary", "Summary"],
  ["flame", "Flame graph"],
  ["bottom-up", "Bottom-up"],
  ["top-down", "Top-down"],
  ["callers", "Caller / callee"],
  ["consumed", "Consumed"],
  ["allocations", "Allocations"],
  ["temporary", "Temporary"],
  ["sizes", "Sizes"],
  ["lifetimes", "Lifetimes"],
  ["leaks", "Leaks"],
  ["memory", "Memory"],
  ["threads", "Threads"],
  ["allocators", "Allocators"],
  ["processes", "Processes"],
  ["source", "Source"],
] as const;
export type View = (typeof VIEWS)[number][0];

export type Normal = "second" | "allocation" | "share";

/** Stands for the event of the peak, which no time names exactly. */
export const PEAK = -1;

export type State = {
  view: View;
  /** The index of the trace. */
  file: number;
  /** Whose blocks: malloc's, or those that the program's own allocators reported. */
  domain: "malloc" | "custom" | "mapped";
  /** Nanoseconds. `at`: a moment, or PEAK. `from`/`to`: a range. */
  at?: number | undefined;
  from?: number | undefined;
  to?: number | undefined;
  include: string[];
  exclude: string[];
  thread: number[];
  /** Processes: a pid, a name, or # and an index. */
  process: string[];
  /** Names of allocators. */
  allocator: string[];
  /** Names of functions that count as a part of the allocator, and of functions that do not. */
  wrapper: string[];
  "not-wrapper": string[];
  size?: string | undefined;
  lifetime?: string | undefined;
  /**
   * "mine": only levels in the user's own code; "all": all levels; "auto": "mine" if at least half of the allocations and live blocks have such a level, otherwise
   * "all".
   */
  levels: "auto" | "mine" | "all";
  merge: "function" | "line" | "module" | "namespace";
  /** If true, consecutive levels of the same function are shown as one. */
  recursion: boolean;
  suppressions: boolean;
  /** The base of a comparison: the index of another trace, or `@` and a moment in nanoseconds, or `@peak`. */
  compare?: string | undefined;
  /** How the base of a comparison with another trace is scaled: not at all, or to this trace's length, allocations, or total of each cost. */
  normalise: "no" | Normal;
  /** Other traces that are compared to the same base. */
  runs: number[];
  cost: Cost;
  sort?: Cost | "name" | undefined;
  ascending: boolean;
  /** The function of Caller / callee. */
  fn?: string | undefined;
  /** The source file and line. */
  src?: string | undefined;
  line?: number | undefined;
  /**
   * The flame graph: bottom-up instead of top-down, the root at the top, the smallest share of a box in percent, the searched text, the path of the box that fills
   * the width.
   */
  up: boolean;
  icicle: boolean;
  threshold: number;
  search: string;
  zoom: string;
  /** Whether names have template arguments and parameters. */
  full: boolean;
  /** The timeline's mode. */
  chart: "live" | "rate" | "rss" | "threads" | "processes";
  /** The rows of the list of processes. */
  group: "process" | "command";
  /** The order of the parts of the memory: largest first, names from A. `reversed`: the other way round. */
  order: "rss_bytes" | "pss_bytes" | "kind" | "name";
  reversed: boolean;
  /** What decides the colours of the map of the address space, and the addresses that it is zoomed to. */
  paint: "owner" | "fill" | "age";
  mapFrom?: number | undefined;
  mapTo?: number | undefined;
  /** Zoom of the timeline without a filter. */
  zoomFrom?: number | undefined;
  zoomTo?: number | undefined;
  bands: number;
  legend: boolean;
  total: boolean;
  detail: boolean;
  log: boolean;
  cumulative: boolean;
  measure: "allocations" | "allocated_bytes" | "peak_bytes" | "live_bytes";
};

export const INITIAL: State = {
  view: "summary",
  file: 0,
  domain: "malloc",
  include: [],
  exclude: [],
  thread: [],
  process: [],
  allocator: [],
  wrapper: [],
  "not-wrapper": [],
  levels: "auto",
  merge: "function",
  recursion: true,
  suppressions: true,
  normalise: "no",
  runs: [],
  cost: "peak_bytes",
  ascending: false,
  up: false,
  icicle: true,
  threshold: 0.1,
  search: "",
  zoom: "",
  full: false,
  chart: "live",
  group: "process",
  order: "rss_bytes",
  reversed: false,
  paint: "owner",
  bands: 10,
  legend: true,
  total: true,
  detail: true,
  log: false,
  cumulative: false,
  measure: "allocations",
};

type Key = keyof State;
const NUMBERS: Key[] = ["file", "at", "from", "to", "threshold", "zoomFrom", "zoomTo", "mapFrom", "mapTo", "bands", "line"];
const SWITCHES: Key[] = ["recursion", "suppressions", "ascending", "reversed", "up", "icicle", "full", "legend", "total", "detail", "log", "cumulative"];
const LISTS: Key[] = ["include", "exclude", "thread", "process", "allocator", "wrapper", "not-wrapper", "runs"];
const NUMBER_LISTS: Key[] = ["thread", "runs"];
const TEXTS: Key[] = ["size", "lifetime", "domain", "levels", "merge", "compare", "normalise", "cost", "sort", "fn", "src", "search", "zoom", "chart", "group", "order", "paint", "measure"];

export const parse = (hash: string): State => {
  const state: Record<string, unknown> = { ...INITIAL, include: [], exclude: [], thread: [], process: [], allocator: [], wrapper: [], "not-wrapper": [], runs: [] };
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const view = mark < 0 ? text : text.slice(0, mark);
  if (VIEWS.some(([name]) => name === view)) state.view = view;
  const words = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
  for (const key of NUMBERS) {
    const number = words.get(key) === "peak" ? PEAK : Number(words.get(key));
    if (words.has(key) && Number.isFinite(number)) state[key] = number;
  }
  for (const key of SWITCHES) if (words.has(key)) state[key] = words.get(key) === "1";
  for (const key of TEXTS) if (words.has(key)) state[key] = words.get(key);
  for (const key of LISTS) state[key] = NUMBER_LISTS.includes(key) ? words.getAll(key).map(Number).filter(Number.isFinite) : words.getAll(key);
  return state as State;
};

export const format = (state: State): string => {
  const words = new URLSearchParams();
  for (const key of [...NUMBERS, ...TEXTS] as Key[]) {
    const value = state[key];
    if (value !== undefined && value !== INITIAL[key]) words.set(key, value === PEAK && key === "at" ? "peak" : String(value));
  }
  for (const key of SWITCHES) if (state[key] !== INITIAL[key]) words.set(key, state[key] ? "1" : "0");
  for (const key of LISTS) for (const value of state[key] as unknown[]) words.append(key, String(value));
  const text = words.toString();
  return `#/${state.view}${text ? `?${text}` : ""}`;
};

export const mode = (state: State): Mode => (state.at !== undefined ? "moment" : state.from !== undefined || state.to !== undefined ? "range" : "session");

/**
 * The part of the state that decides the costs of stacks, as a query for the engine. If the base is another trace, the worker removes `compare` and `normalise` and
 * compares the two traces itself.
 */
export const query = (state: State): string => {
  const words = new URLSearchParams();
  if (state.at !== undefined) words.set("at", state.at === PEAK ? "peak" : String(Math.round(state.at)));
  else {
    if (state.from !== undefined) words.set("from", String(Math.round(state.from)));
    if (state.to !== undefined) words.set("to", String(Math.round(state.to)));
  }
  filters(state, words);
  if (state.compare !== undefined) words.set("compare", state.compare);
  if (isOtherTrace(state.compare) && state.normalise !== "no") words.set("normalise", state.normalise);
  return words.toString();
};

/** Whether the base is another trace, and not another moment of this one. */
export const isOtherTrace = (compare: string | null | undefined): boolean => /^\d+$/.test(compare ?? "");

/** Further runs that are compared to the same other trace. */
export const comparedRuns = ({ compare, runs, file }: State): number[] => (isOtherTrace(compare) ? runs.filter((run) => run !== file && run !== Number(compare)) : []);

/** The query for the whole session, without range and filters. */
export const whole = (state: State): string => (state.domain === "malloc" ? "" : `domain=${state.domain}`);

/** The query with the filters only, for the timeline, which always shows the whole session. */
export const timeless = (state: State): string => {
  const words = new URLSearchParams();
  filters(state, words);
  return words.toString();
};

const filters = (state: State, words: URLSearchParams): void => {
  if (state.domain !== "malloc") words.set("domain", state.domain);
  for (const text of state.include) words.append("include", text);
  for (const text of state.exclude) words.append("exclude", text);
  for (const thread of state.thread) words.append("thread", String(thread));
  for (const process of state.process) words.append("process", process);
  for (const allocator of state.allocator) words.append("allocator", allocator);
  if (state.size !== undefined) words.set("size", state.size);
  if (state.lifetime !== undefined) words.set("lifetime", state.lifetime);
  if (!state.suppressions) words.set("suppressions", "off");
  for (const name of state.wrapper) words.append("wrapper", name);
  for (const name of state["not-wrapper"]) words.append("not-wrapper", name);
};

export const filtered = (state: State): boolean =>
  state.include.length + state.exclude.length + state.thread.length + state.process.length + state.allocator.length > 0 || state.size !== undefined || state.lifetime !== undefined;

/** The text for a moment: "the peak", or its time. */
export const momentText = (at: number, format: (ns: number) => string): string => (at === PEAK ? "the peak" : format(at));
