// The costs of a stack: their names, their meaning and their format.
//
// Receives: a cost, and what is shown (the whole session, a range or one moment). Returns: a name that is right for it.
// Only blocks that are live at the end of the session are called "Leaked"; in a range the blocks at its end are "Live at end".

/** Sums over stacks, in the order of the columns in all messages between the worker and the page. */
export const SUMS = [
  "peak_bytes",
  "live_bytes",
  "allocations",
  "temporary",
  "allocated_bytes",
  "deallocations",
  "freed_bytes",
  "live_allocations",
  "peak_allocations",
  "base_bytes",
  "base_allocations",
  "kept_bytes",
  "kept_allocations",
  "lifetime_ns",
  "temporary_bytes",
  "leaked_bytes",
  "leaked_allocations",
] as const;
export type Sum = (typeof SUMS)[number];
export const WIDTH = SUMS.length;
export const at = (sum: Sum): number => SUMS.indexOf(sum);

export type Kind = "bytes" | "count" | "time" | "ratio";

/** A column: a sum, or a value computed from sums. */
export type Cost = Sum | "growth_bytes" | "average" | "mean_lifetime" | "kept_ratio";

export const value = (costs: ArrayLike<number>, cost: Cost, from = 0): number => {
  const sum = (name: Sum): number => costs[from + at(name)] ?? 0;
  switch (cost) {
    case "growth_bytes":
      return sum("live_bytes") - sum("base_bytes");
    case "average":
      return sum("allocations") > 0 ? sum("allocated_bytes") / sum("allocations") : 0;
    case "mean_lifetime":
      return sum("deallocations") > 0 ? sum("lifetime_ns") / sum("deallocations") : 0;
    case "kept_ratio":
      return sum("allocations") > 0 ? sum("leaked_allocations") / sum("allocations") : 0;
    default:
      return sum(cost);
  }
};

/** False if the cost is a mean of nothing. Without frees, for example, there is no mean life. */
export const isKnown = (costs: ArrayLike<number>, cost: Cost): boolean => {
  const of = cost === "mean_lifetime" ? "deallocations" : cost === "average" || cost === "kept_ratio" ? "allocations" : undefined;
  return of === undefined || (costs[at(of)] ?? 0) > 0;
};

/** True if an amount is a part of the total. Growth is not, because one function may grow by more than all functions together. */
export const isPart = (cost: Cost): boolean => COSTS[cost].kind !== "ratio" && cost !== "average" && cost !== "mean_lifetime" && cost !== "growth_bytes";

/** The largest amount that a row can have if these are the totals. A bar of that amount has the full width. */
export const largest = (cost: Cost, totals: ArrayLike<number>, base?: ArrayLike<number>): number => {
  const most = (of: Cost): number => Math.max(Math.abs(value(totals, of)), Math.abs(base ? value(base, of) : 0));
  return cost === "growth_bytes" ? Math.max(most("live_bytes"), most("base_bytes")) : most(cost);
};

/** What the numbers are about: the whole session, a range or one moment. */
export type Mode = "session" | "range" | "moment";

type Row = { kind: Kind; names: Record<Mode, string>; help: Record<Mode, string> };
const same = (text: string): Record<Mode, string> => ({ session: text, range: text, moment: text });

export const COSTS: Record<Cost, Row> = {
  peak_bytes: {
    kind: "bytes",
    names: { session: "Peak", range: "Peak in range", moment: "Live" },
    help: {
      session: "Bytes held when the whole heap was at its largest.",
      range: "Bytes held when the whole heap was at its largest within the range.",
      moment: "Bytes live at this moment.",
    },
  },
  leaked_bytes: {
    kind: "bytes",
    names: same("Leaked"),
    help: same("Bytes not freed until the end of the session, without suppressed leaks."),
  },
  leaked_allocations: {
    kind: "count",
    names: same("Leaked blocks"),
    help: same("Blocks not freed until the end of the session, without suppressed leaks."),
  },
  live_bytes: {
    kind: "bytes",
    names: { session: "Live at end", range: "Live at end", moment: "Live" },
    help: {
      session: "Bytes live at the end of the session, suppressed or not.",
      range: "Bytes live at the end of the range, whenever they were allocated.",
      moment: "Bytes live at this moment.",
    },
  },
  growth_bytes: {
    kind: "bytes",
    names: { session: "Growth", range: "Growth", moment: "Growth" },
    help: same("Live at the end of the range minus live at its start."),
  },
  kept_bytes: {
    kind: "bytes",
    names: { session: "Kept", range: "Kept", moment: "Kept" },
    help: same("Allocated within the range and not freed in it."),
  },
  kept_allocations: { kind: "count", names: same("Kept blocks"), help: same("Blocks allocated within the range and not freed in it.") },
  allocations: { kind: "count", names: { session: "Allocations", range: "Allocations", moment: "Live blocks" }, help: same("Calls that returned a block.") },
  temporary: {
    kind: "count",
    names: same("Temporary"),
    help: same("Blocks freed by their own thread before it allocated anything else."),
  },
  temporary_bytes: { kind: "bytes", names: same("Temporary bytes"), help: same("Bytes of temporary blocks.") },
  allocated_bytes: { kind: "bytes", names: same("Allocated"), help: same("Total of the requested bytes, freed or not.") },
  deallocations: { kind: "count", names: same("Frees"), help: same("Frees of blocks that were allocated here.") },
  freed_bytes: { kind: "bytes", names: same("Freed"), help: same("Bytes freed of blocks that were allocated here.") },
  live_allocations: {
    kind: "count",
    names: { session: "Live blocks", range: "Live blocks", moment: "Live blocks" },
    help: {
      session: "Blocks live at the end of the session, suppressed or not.",
      range: "Blocks live at the end of the range.",
      moment: "Blocks live at this moment.",
    },
  },
  peak_allocations: {
    kind: "count",
    names: { session: "Blocks at peak", range: "Blocks at peak", moment: "Live blocks" },
    help: same("Blocks held when the whole heap was at its largest, within the range if one is selected."),
  },
  base_bytes: { kind: "bytes", names: same("Live at start"), help: same("Bytes live at the start of the range.") },
  base_allocations: { kind: "count", names: same("Blocks at start"), help: same("Blocks live at the start of the range.") },
  lifetime_ns: { kind: "time", names: same("Total lifetime"), help: same("Sum of the lifetimes of the blocks that were freed.") },
  average: { kind: "bytes", names: same("Average size"), help: same("Bytes allocated divided by the number of allocations.") },
  mean_lifetime: { kind: "time", names: same("Mean life"), help: same("Mean time from allocation to free, of blocks that were freed.") },
  kept_ratio: { kind: "ratio", names: same("% kept"), help: same("Leaked blocks divided by allocations: 100 % means that nothing was freed.") },
};

/** The sums that are known. Undefined if all are: only a heap profile of another tool lacks some. */
let knownSums: ReadonlySet<string> | undefined;

/** Called before anything is drawn. In a comparison, both sides must know a cost. */
export const limitTo = (sums: (readonly string[] | null)[]): void => {
  const limits = sums.filter((list) => list !== null);
  const [first, ...others] = limits;
  knownSums = first && new Set(first.filter((sum) => others.every((other) => other.includes(sum))));
};

/** The sums that a cost is computed from. */
const NEEDS: Partial<Record<Cost, Sum[]>> = {
  growth_bytes: ["live_bytes", "base_bytes"],
  average: ["allocations", "allocated_bytes"],
  mean_lifetime: ["deallocations", "lifetime_ns"],
  kept_ratio: ["leaked_allocations", "allocations"],
};

/** Whether the traces that are shown know this cost. What is not known is not shown. */
export const knows = (cost: Cost): boolean => knownSums === undefined || (NEEDS[cost] ?? [cost as Sum]).every((sum) => knownSums?.has(sum));

/** A heap profile does not tell whether its live blocks are freed later, so they are not called leaked. */
const told = (cost: Cost): [Cost, Mode | undefined] =>
  knownSums === undefined ? [cost, undefined] : cost === "leaked_bytes" ? ["live_bytes", "moment"] : cost === "leaked_allocations" ? ["live_allocations", "moment"] : [cost, undefined];
export const name = (cost: Cost, mode: Mode): string => COSTS[told(cost)[0]].names[told(cost)[1] ?? mode];
export const help = (cost: Cost, mode: Mode): string => COSTS[told(cost)[0]].help[told(cost)[1] ?? mode];

/** The columns that tables can have; `SHOWN` are those that they have by default. */
export const COLUMNS: Record<Mode, Cost[]> = {
  session: [
    "peak_bytes",
    "leaked_bytes",
    "allocations",
    "temporary",
    "allocated_bytes",
    "leaked_allocations",
    "peak_allocations",
    "deallocations",
    "freed_bytes",
    "average",
    "mean_lifetime",
    "kept_ratio",
  ],
  range: [
    "peak_bytes",
    "growth_bytes",
    "live_bytes",
    "kept_bytes",
    "allocations",
    "temporary",
    "allocated_bytes",
    "base_bytes",
    "live_allocations",
    "kept_allocations",
    "peak_allocations",
    "deallocations",
    "freed_bytes",
    "average",
    "mean_lifetime",
  ],
  moment: ["live_bytes", "live_allocations"],
};
export const SHOWN: Record<Mode, Cost[]> = {
  session: ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"],
  range: ["peak_bytes", "growth_bytes", "kept_bytes", "allocations", "temporary", "allocated_bytes"],
  moment: ["live_bytes", "live_allocations"],
};

/** The costs that a flame graph can show. */
export const FLAMES: Record<Mode, Cost[]> = {
  session: ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"],
  range: ["peak_bytes", "live_bytes", "kept_bytes", "allocations", "temporary", "allocated_bytes"],
  moment: ["live_bytes", "live_allocations"],
};

/** Returns this cost, or the one that `usable` chooses for it, if a flame graph can show it. Otherwise returns the first cost that a flame graph can show. */
export const drawable = (cost: Cost, mode: Mode): Cost => {
  const wanted = usable(cost, mode);
  const flames = FLAMES[mode].filter(knows);
  return flames.includes(wanted) ? wanted : (flames[0] ?? "peak_bytes");
};

/** Returns this cost if tables have a column for it in this mode. Otherwise returns a cost that they have: a similar one, or the peak. */
export const usable = (cost: Cost, mode: Mode): Cost => {
  if (COLUMNS[mode].includes(cost) && knows(cost)) return cost;
  if (knownSums !== undefined) return FLAMES[mode].find(knows) ?? cost;
  if (mode === "session" && cost === "live_bytes") return "leaked_bytes";
  if (mode === "range" && cost === "leaked_bytes") return "live_bytes";
  return mode === "moment" ? (COSTS[cost].kind === "count" ? "live_allocations" : "live_bytes") : "peak_bytes";
};
