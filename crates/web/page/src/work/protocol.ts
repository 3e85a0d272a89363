// The requests of the page to its worker, and the answers. Numbers are sent as typed arrays, names as text.
import type { Cost } from "../costs";
import type { Normal } from "../state";
import type { Flame } from "./flame";
import type { Level, Look, Wrapper } from "./stacks";
import type { Direction, Sort } from "./tree";

/**
 * A trace and a query (state.ts), which decide the costs. `version` increases when the trace grows and when suppressions are added. `base` is the version of the
 * trace that is compared with, or 0 if there is none.
 */
export type Ask = { trace: number; query: string; version: number; base: number };

/** A level and its costs. */
export type Row = { level: Level; key: number; sums: Float64Array; base: Float64Array | undefined; self?: Float64Array };
export type TreeRow = Row & { path: string; indent: number; depth: number; expandable: boolean; expanded: boolean; siblings: number; place: number };
export type Stack = { stack: number; sums: Float64Array; base: Float64Array | undefined; own?: { bytes: number; time_ns: number; largest: number }; levels: Level[]; blamed: number };

export type Totals = { sums: Float64Array; base: Float64Array | undefined; answer: Record<string, number>; from_ns: number; to_ns: number };
export type Entry = Row & { via: Level[]; stacks: number };
/** `live`: live bytes by blamed function (`functionName`). */
export type Overview = { totals: Totals; lists: Record<string, Entry[]>; counts: Record<string, number>; mine: number; live: Map<string, number>; wrappers: Wrapper[] };

/** A function before, and after in each run. `row`: its row in the first run, for the details. Undefined if neither that run nor the base has it. */
export type Change = { level: Level; name: string; row: Row | undefined; before: number; after: number[] };

/** A function that did not change in the selected cost, but in another one. */
export type Elsewhere = { level: Level; name: string; row: Row; measure: Measure; before: number; after: number };
/** A measure in which a function can change. `own_peak`: the most that one of its stacks held at any time. */
export type Measure = "peak_bytes" | "own_peak" | "leaked_bytes" | "live_bytes" | "allocations" | "temporary" | "allocated_bytes" | "live_allocations";

/**
 * A set of stacks: those below a node of a tree, those that contain a function, those that end in a function (self), those with a blamed function, those with the
 * same blamed line as one stack (site), or all.
 */
export type Selection =
  | { of: "tree"; direction: Direction; path: string }
  | { of: "function"; key: number }
  | { of: "self"; key: number }
  | { of: "blamed"; key: number }
  | { of: "site"; stack: number; suppressed: boolean }
  | { of: "all" };

export type FlameAnswer = { flame: Flame; labels: Map<number, Level>; total: number };

export type Requests = {
  raw: { args: { view: string; trace: number; query: string; version: number; wait?: boolean }; result: Record<string, unknown> };
  overview: { args: { ask: Ask; costs: Cost[]; limit: number }; result: Overview };
  tree: { args: { ask: Ask; look: Look; direction: Direction; sort: Sort }; result: { count: number; totals: Totals } };
  window: { args: { direction: Direction; from: number; to: number }; result: TreeRow[] };
  toggle: { args: { direction: Direction; path: string; how: "open" | "close" | "all" | "hot" | "none" }; result: { count: number; index: number } };
  place: { args: { direction: Direction; path: string }; result: number };
  flame: { args: { ask: Ask; look: Look; direction: Direction; cost: Cost; threshold: number }; result: FlameAnswer };
  functions: { args: { ask: Ask; look: Look; sort: Sort; self: boolean; filter: string }; result: { count: number; totals: Totals } };
  functionWindow: { args: { from: number; to: number }; result: Row[] };
  neighbours: {
    args: { ask: Ask; look: Look; key: number; cost: Cost };
    result: { subject: Row; callers: Row[]; callees: Row[]; lines: { file: string; line: number; sums: Float64Array; base: Float64Array | undefined; self: Float64Array }[] } | undefined;
  };
  key: { args: { ask: Ask; look: Look; name: string }; result: number | undefined };
  stacks: { args: { ask: Ask; look: Look; selection: Selection; cost: Cost; from: number; to: number }; result: { count: number; sums: Float64Array; base: Float64Array | undefined; self: Float64Array | undefined; totals: Totals; stacks: Stack[] } };
  /** `asks`: one per run, all with the same base. */
  diff: { args: { asks: Ask[]; look: Look; cost: Cost; normal: Normal | undefined }; result: Change[] };
  elsewhere: { args: { ask: Ask; look: Look; cost: Cost; measures: Measure[] }; result: Elsewhere[] };
  suppress: { args: { text: string }; result: Record<string, unknown> };
  /** Only in the viewer: opens a file and returns its index, or forgets one. */
  add: { args: { file: File }; result: number };
  remove: { args: { trace: number }; result: number };
  /** Only in the viewer: rules that say what the user's own code is. */
  rules: { args: { file: File }; result: Record<string, unknown> };
  text: { args: { ask: Ask; look: Look; format: "csv" | "json" | "folded"; cost: Cost }; result: string };
};
export type Op = keyof Requests;
export type Message = { id: number; op: Op; args: unknown };
export type Reply = { id: number; result?: unknown; error?: string };
