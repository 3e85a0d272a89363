// What is looked at: one value that lives in the address, behind `#`.
//
// Given: an address, or a change. Gives back: the state. What must hold: everything that decides what is shown is in here, so Back works
// and a link shows somebody else the same; what is not set is not in the address.
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
  ["threads", "Threads"],
  ["source", "Source"],
] as const;
export type View = (typeof VIEWS)[number][0];

export type Normal = "second" | "allocation" | "share";

/** The very event of the peak, which no time says exactly. */
export const PEAK = -1;

export type State = {
  view: View;
  /** Which of the traces that were given. */
  file: number;
  /** Whose blocks: malloc's, or those that the program's own allocators reported. */
  domain: "malloc" | "custom";
  /** Nanoseconds. `at`: a moment, or PEAK. `from`/`to`: a range. */
  at?: number | undefined;
  from?: number | undefined;
  to?: number | undefined;
  include: string[];
  exclude: string[];
  thread: number[];
  size?: string | undefined;
  lifetime?: string | undefined;
  /** "mine": only the user's own levels; "all": all of them; "auto": mine, unless most of the costs have none. */
  levels: "auto" | "mine" | "all";
  merge: "function" | "line" | "module" | "namespace";
  /** Consecutive levels of the same function are one. */
  recursion: boolean;
  suppressions: boolean;
  /** Another trace's number, or `@ns`. */
  compare?: string | undefined;
  /** What the base of a comparison with another trace is scaled to: nothing, or as long, as many allocations, as much of each cost as this one. */
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
  /** Flame graph. */
  up: boolean;
  icicle: boolean;
  threshold: number;
  search: string;
  zoom: string;
  full: boolean;
  /** The timeline's mode. */
  chart: "live" | "rate" | "rss" | "threads";
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
  bands: 10,
  legend: true,
  total: true,
  detail: true,
  log: false,
  cumulative: false,
  measure: "allocations",
};

type Key = keyof State;
const NUMBERS: Key[] = ["file", "at", "from", "to", "threshold", "zoomFrom", "zoomTo", "bands", "line"];
const SWITCHES: Key[] = ["recursion", "suppressions", "ascending", "up", "icicle", "full", "legend", "total", "detail", "log", "cumulative"];
const LISTS: Key[] = ["include", "exclude", "thread", "runs"];
const NUMBER_LISTS: Key[] = ["thread", "runs"];
const TEXTS: Key[] = ["size", "lifetime", "domain", "levels", "merge", "compare", "normalise", "cost", "sort", "fn", "src", "search", "zoom", "chart", "measure"];

export const parse = (hash: string): State => {
  const state: Record<string, unknown> = { ...INITIAL, include: [], exclude: [], thread: [], runs: [] };
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

/** The query of the engine: what decides the costs of stacks. */
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

/** Compared to another trace, not to another moment of this one. */
export const isOtherTrace = (compare: string | null | undefined): boolean => /^\d+$/.test(compare ?? "");

/** Further runs that are compared to the same other trace. */
export const comparedRuns = ({ compare, runs, file }: State): number[] => (isOtherTrace(compare) ? runs.filter((run) => run !== file && run !== Number(compare)) : []);

/** The whole session: what a range or a filter does not change. */
export const whole = (state: State): string => (state.domain === "custom" ? "domain=custom" : "");

/** The same without a time: for the timeline, which always shows all of it. */
export const timeless = (state: State): string => {
  const words = new URLSearchParams();
  filters(state, words);
  return words.toString();
};

const filters = (state: State, words: URLSearchParams): void => {
  if (state.domain === "custom") words.set("domain", "custom");
  for (const text of state.include) words.append("include", text);
  for (const text of state.exclude) words.append("exclude", text);
  for (const thread of state.thread) words.append("thread", String(thread));
  if (state.size !== undefined) words.set("size", state.size);
  if (state.lifetime !== undefined) words.set("lifetime", state.lifetime);
  if (!state.suppressions) words.set("suppressions", "off");
};

export const filtered = (state: State): boolean =>
  state.include.length + state.exclude.length + state.thread.length > 0 || state.size !== undefined || state.lifetime !== undefined;

/** How a moment is called. */
export const momentText = (at: number, format: (ns: number) => string): string => (at === PEAK ? "the peak" : format(at));
