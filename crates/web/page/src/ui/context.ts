// What every view needs: the state, its trace, and values that follow from both.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { type Cost, type Mode, usable } from "../costs";
import { type State, isOtherTrace, mode, query } from "../state";
import type { Ask, Selection } from "../work/protocol";
import type { Level, Look } from "../work/stacks";

export type TraceStatus = {
  name: string;
  path: string;
  state: "waiting" | "loading" | "ready" | "live" | "failed";
  progress: number;
  remaining_ns: number | null;
  error: string | null;
  version: number;
  /** True if the program's own allocators reported blocks. */
  custom: boolean;
  /** True if mappings that the program made itself were recorded. */
  mapped: boolean;
  notes: string[];
  session: {
    command: string[];
    pid: number | null;
    /** Where and when it was recorded, as far as it is known. An older report does not say it. */
    hostname?: string | null;
    started_unix_ns?: number | null;
    /** The number of processes of a tree; 0 if the trace is of one process. */
    processes: number;
    /** The names of the allocators that blocks came from, malloc first. */
    allocators: string[];
    attached: boolean;
    complete: boolean;
    runtime_ns: number;
    system_memory: number | null;
    events: number;
    lost_events: number;
    /** Up to this time the trace has only sums and surviving blocks. Null if it has every event. */
    folded_until_ns: number | null;
    peak_rss_bytes: number;
    overhead_bytes: number;
    exit: string | null;
    /** If blocks were sampled: once in how many bytes, and half the widths of the 95 % intervals of the whole session's totals. All numbers of blocks and bytes are estimates then. */
    sampling?: { rate_bytes: number; totals_error: Record<string, number> } | null;
    /** The costs that a heap profile of another tool knows; null for a trace, which knows all. It has no times and no single blocks. */
    known: string[] | null;
    /** The program that wrote the file. */
    tool: string;
  } | null;
};
export type Status = {
  tool: string;
  /** Null for a trace in the same folder that has not been opened. */
  traces: (TraceStatus | null)[];
  /** Other traces in the same folder, which can be opened, too. */
  beside: { index: number; name: string }[];
  compare: number | null;
  /** Only in a report that has prepared answers instead of the trace (`heaptrack report --summary-only`). */
  report: { slices: number; notes: string[] } | null;
  /** Sentences about what is left out of a report with a trace. Only in the viewer. */
  notes?: string[];
  /** True if the server can make a report of a trace. */
  can_save?: boolean;
};

export const opened = (status: Status): { index: number; name: string }[] =>
  status.traces.flatMap((trace, index) => (trace ? [{ index, name: trace.name }] : []));

export const traceName = (status: Status, index: number): string =>
  status.traces[index]?.name ?? status.beside.find((one) => one.index === index)?.name ?? String(index);

/** What the details are about. `isWhole`: it was picked in a view that always shows the whole session. */
export type Pick = { title: string; level: Level; selection: Selection; isWhole?: boolean };
/**
 * A selection, with the levels that were shown (`look`) and the other trace that was compared (`between`, or "") when it was made. Its keys are valid only for
 * these.
 */
export type Picked = Pick & { look: Look; between: string };

export type Page = {
  state: State;
  status: Status;
  trace: TraceStatus;
  ask: Ask;
  look: Look;
  mode: Mode;
  cost: Cost;
  isDiff: boolean;
  runtime: number;
  /** The peak of the whole session and all blocks. Undefined until it and the colours of functions are known. */
  peak: { time_ns: number; bytes: number } | undefined;
  /** The selected moment: its time, the live bytes, and the live bytes of each function. Undefined if no moment is selected or its numbers are not there yet. */
  live: { time_ns: number; bytes: number; byFunction: Map<string, number> } | undefined;
  picked: Picked | undefined;
  pick: (picked: Pick | undefined) => void;
  say: (sentence: string) => void;
  /** Requests the status again, after a request that has changed the versions of traces. */
  refresh: () => void;
};

export const PageContext = createContext<Page | undefined>(undefined);
export const usePage = (): Page => {
  const page = useContext(PageContext);
  if (!page) throw new Error("outside of a page");
  return page;
};

/** The version of a trace when the status was requested. 0 for a trace of the same folder that was not open then. */
export const versionOf = (status: Status, trace: number): number => status.traces[trace]?.version ?? 0;
/** `trace` is given for another run that is compared to the same base. */
export const askOf = (state: State, status: Status, trace = state.file): Ask => ({
  trace,
  query: query(state),
  version: versionOf(status, trace),
  base: isOtherTrace(state.compare) ? versionOf(status, Number(state.compare)) : 0,
});
export const lookOf = (state: State, mine: number): Look => ({
  levels: state.levels === "auto" ? (mine >= 0.5 ? "mine" : "all") : state.levels,
  merge: state.merge,
  recursion: state.recursion,
});
export const modeOf = mode;
/** A report does not know which blocks of a range were kept. A link to these costs shows the live blocks at the end of the range instead. */
export const withoutKept = (state: State): State => {
  if (mode(state) !== "range") return state;
  const known = (cost: Cost): Cost => (cost === "kept_bytes" ? "live_bytes" : cost === "kept_allocations" ? "live_allocations" : cost);
  return { ...state, cost: known(state.cost), sort: state.sort === undefined || state.sort === "name" ? state.sort : known(state.sort) };
};
/** A heap profile has sums and no events, so no part of its time and of its blocks can be selected. */
export const isProfile = (trace: TraceStatus | null | undefined): boolean => (trace?.session?.known ?? null) !== null;
/** The state without what needs events. */
export const withoutEvents = (state: State): State => ({
  ...state,
  at: undefined,
  from: undefined,
  to: undefined,
  thread: [],
  process: [],
  allocator: [],
  size: undefined,
  lifetime: undefined,
  compare: isOtherTrace(state.compare) ? state.compare : undefined,
});

export const costOf = (state: State): Cost => usable(state.cost, mode(state));
