// Other traces in the timeline: a line for the base of a comparison and one for each further run.
//
// Receives: whole timelines, this trace's first. Returns: a line for each other trace, in its own time. Must hold: a line is scaled like the numbers of the comparison
// (decisions/0032), and its name says by how much. Time is never scaled. Lines differ in their dashes as well as in colour; lines of this trace have no dashes.
import { type State, comparedRuns, isOtherTrace } from "../state";
import { time } from "../units";
import type { Line } from "./area";
import { type Status, traceName } from "./context";
import type { Timeline } from "./series";

type What = "live_bytes" | "allocations";

const DASHES = [[9, 4], [2, 3], [9, 3, 2, 3], [5, 5], [16, 4], [9, 3, 2, 3, 2, 3]];
/** Colours on light and on dark paper. The base has the colour of text. */
const COLOURS = { light: ["#0a4fa3", "#8d1d60", "#00594c", "#6a4300"], dark: ["#8fc4ff", "#ff9ed2", "#7fe3d0", "#ffd27a"] };

/** The traces whose timelines are drawn besides this trace's, the base first. */
export const overlaid = (state: State): number[] => (isOtherTrace(state.compare) ? [Number(state.compare), ...comparedRuns(state)] : []);

/** The factor for the values of the other trace. */
const factor = (how: State["normalise"], what: What, here: Timeline, other: Timeline): number => {
  const ratio = (of: (timeline: Timeline) => number): number => (of(here) > 0 && of(other) > 0 ? of(here) / of(other) : 1);
  const calls = (timeline: Timeline): number => timeline.totals.allocations ?? 0;
  switch (how) {
    case "second":
      // A rate is per second already.
      return what === "allocations" ? 1 : ratio(({ range }) => range.to_ns - range.from_ns);
    case "allocation":
      return ratio(calls);
    case "share":
      return ratio(what === "allocations" ? calls : ({ totals }) => totals.peak_bytes ?? 0);
    default:
      return 1;
  }
};

export const overlay = (timelines: Timeline[], state: State, status: Status, what: What, ink: { text: string }, isDark: boolean): Line[] => {
  const [here, ...others] = timelines;
  const traces = overlaid(state);
  // If the numbers differ, the timelines are the answer to an older query.
  if (!here || others.length !== traces.length) return [];
  const colours = COLOURS[isDark ? "dark" : "light"];
  return others.map((other, index) => {
    const by = factor(state.normalise, what, here, other);
    const times = [other.range.from_ns, ...other.time_ns];
    const seconds = (slice: number): number => Math.max(1, (times[slice + 1] ?? 0) - (times[slice] ?? 0)) / 1e9;
    const name = `${traceName(status, traces[index] ?? 0)}${index === 0 ? " (base)" : ""}`;
    const scaled = by === 1 ? "" : ` × ${by.toPrecision(3)}`;
    const beyond = other.range.to_ns > here.range.to_ns ? `, continues to ${time(other.range.to_ns)}` : "";
    return {
      name: `${name}${scaled}${beyond}`,
      colour: index === 0 ? ink.text : (colours[(index - 1) % colours.length] ?? ink.text),
      dash: DASHES[index % DASHES.length] ?? [],
      times,
      values: what === "live_bytes" ? other.live_bytes.map((bytes) => bytes * by) : other.allocations.map((calls, slice) => (calls * by) / seconds(slice)),
    };
  });
};
