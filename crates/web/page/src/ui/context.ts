// What every view needs: the state, the trace it is about, and what follows from both.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { type Cost, type Mode, usable } from "../costs";
import { type State, mode, query } from "../state";
import type { Ask, Row, Selection } from "../work/protocol";
import type { Look } from "../work/stacks";

export type TraceStatus = {
  name: string;
  path: string;
  state: "waiting" | "loading" | "ready" | "live" | "failed";
  progress: number;
  remaining_ns: number | null;
  error: string | null;
  version: number;
  /** The program reported blocks of its own. */
  custom: boolean;
  notes: string[];
  session: {
    command: string[];
    pid: number | null;
    attached: boolean;
    complete: boolean;
    runtime_ns: number;
    system_memory: number | null;
    events: number;
    lost_events: number;
    /** Up to then there are sums and what they left; null: every event is there. */
    folded_until_ns: number | null;
    peak_rss_bytes: number;
    overhead_bytes: number;
    exit: string | null;
  } | null;
};
export type Status = {
  tool: string;
  /** Null: lies beside, and nobody asked for it. */
  traces: (TraceStatus | null)[];
  /** Traces that lie beside those given and can be opened too. */
  beside: { index: number; name: string }[];
  compare: number | null;
  report: { slices: number; notes: string[] } | null;
};

/** What the details are about. */
export const opened = (status: Status): { index: number; name: string }[] =>
  status.traces.flatMap((trace, index) => (trace ? [{ index, name: trace.name }] : []));

export const traceName = (status: Status, index: number): string =>
  status.traces[index]?.name ?? status.beside.find((one) => one.index === index)?.name ?? String(index);

export type Picked = { title: string; row: Row; selection: Selection };

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
  picked: Picked | undefined;
  pick: (picked: Picked | undefined) => void;
  say: (sentence: string) => void;
};

export const PageContext = createContext<Page | undefined>(undefined);
export const usePage = (): Page => {
  const page = useContext(PageContext);
  if (!page) throw new Error("outside of a page");
  return page;
};

export const askOf = (state: State, trace: TraceStatus): Ask => ({ trace: state.file, query: query(state), version: trace.version });
export const lookOf = (state: State, mine: number): Look => ({
  levels: state.levels === "auto" ? (mine >= 0.5 ? "mine" : "all") : state.levels,
  merge: state.merge,
  recursion: state.recursion,
});
export const modeOf = mode;
export const costOf = (state: State): Cost => usable(state.cost, mode(state));
