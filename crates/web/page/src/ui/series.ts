// Converts the `timeline` answer to bands that can be drawn.
import { OTHER, functionColour } from "../colours";
import { base } from "../names";
import { bytes, count, short, time } from "../units";
import { functionName } from "../work/stacks";
import type { Band, Drawing, Line } from "./area";

type Values = { live_bytes: number[]; allocations: number[]; temporary: number[] };
export type Timeline = {
  range: { from_ns: number; to_ns: number };
  totals: Record<string, number>;
  time_ns: number[];
  live_bytes: number[];
  live_bytes_end: number[];
  live_allocations: number[];
  allocations: number[];
  allocated_bytes: number[];
  deallocations: number[];
  temporary: number[];
  rss_bytes: (number | null)[];
  overhead_bytes?: (number | null)[];
  bands: ({ function: string | null; short?: string | null; file: string | null; line: number | null; module: string | null } & Values)[];
  other: Values;
  /** When the whole process held most: the time, and the index of its slice. */
  peak: { index: number; time_ns: number };
  /** When the blocks of the query held most, and how much. */
  own_peak?: { bytes: number; time_ns: number };
};

export type What = "live_bytes" | "allocations" | "temporary";
export type Series = Pick<Drawing, "times" | "bands" | "total" | "lines" | "stepped" | "format" | "mark"> & { unit: string };

export const bandName = (band: { function: string | null; short?: string | null; module: string | null }): string =>
  band.short ?? band.function ?? (band.module ? base(band.module) : "[unknown]");

/** The lines of one function are one band, because two bands of the same name could not be told apart. */
const byFunction = (bands: Timeline["bands"]): Timeline["bands"] => {
  const known = new Map<string, Timeline["bands"][number]>();
  for (const band of bands) {
    const name = functionName(band);
    const first = known.get(name);
    const sum = (a: number[], b: number[]): number[] => a.map((value, index) => value + (b[index] ?? 0));
    if (!first) known.set(name, band);
    else
      known.set(name, {
        ...first,
        live_bytes: sum(first.live_bytes, band.live_bytes),
        allocations: sum(first.allocations, band.allocations),
        temporary: sum(first.temporary, band.temporary),
      });
  }
  return [...known.values()];
};

/** `rate`: per second within each slice; otherwise added up from the start. Live bytes are a level and stay as they are. */
export const series = (answer: Timeline, what: What, options: { rate: boolean; detail: boolean; total: boolean; rss: boolean; keep: number }): Series => {
  const times = [answer.range.from_ns, ...answer.time_ns];
  const isLevel = what === "live_bytes";
  const shape = (values: number[]): number[] => {
    if (isLevel) return values;
    if (options.rate) return values.map((value, index) => (value / Math.max(1, (times[index + 1] ?? 0) - (times[index] ?? 0))) * 1e9);
    let sum = 0;
    return values.map((value) => {
      sum += value;
      return sum;
    });
  };
  const bands: Band[] = [];
  if (options.detail) {
    const all = byFunction(answer.bands);
    const kept = all.slice(0, options.keep);
    const rest = all.slice(options.keep);
    const other = (answer.other?.[what] ?? []).map((value, index) => rest.reduce((sum, band) => sum + (band[what][index] ?? 0), value));
    if (other.some((value) => value > 0)) bands.push({ name: "other", colour: OTHER, values: shape(other) });
    // Bands are drawn from the bottom up.
    for (const band of [...kept].reverse()) {
      if (band[what].every((value) => value === 0)) continue;
      bands.push({ name: bandName(band), colour: functionColour(band), values: shape(band[what]), key: functionName(band) });
    }
  } else bands.push({ name: "all", colour: "#8fb0ea", values: shape(answer[what]) });
  const lines: Line[] = [];
  if (options.rss && isLevel) {
    let last = answer.rss_bytes.find((value) => value !== null) ?? 0;
    const rss = answer.rss_bytes.map((value) => {
      last = value ?? last;
      return last;
    });
    if (rss.some((value) => value > 0)) lines.push({ name: "RSS", colour: "#7b53c1", values: rss });
  }
  if (what === "allocations" && options.rate) lines.push({ name: "frees", colour: "#6f7f9f", values: shape(answer.deallocations) });
  return {
    times,
    bands,
    total: options.total ? shape(answer[what]) : undefined,
    lines,
    stepped: !isLevel && options.rate,
    format: isLevel ? bytes : options.rate ? (value) => `${count(Math.round(value))}/s` : (value) => count(Math.round(value)),
    mark: isLevel ? bytes : options.rate ? (value) => `${short(value)}/s` : short,
    unit: isLevel ? "live heap" : options.rate ? "per second" : "since the start",
  };
};

/** The text of an axis mark, without trailing zeros. */
export const formatTime = (ns: number): string => {
  const text = time(ns);
  return text.includes(".") ? text.replace(/\.?0+(?= )/, "") : text;
};
