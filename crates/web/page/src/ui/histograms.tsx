// Sizes and lifetimes: bars over buckets of powers of two. A click on a bar filters everything to that bucket.
import type { JSX } from "preact";
import { functionColour } from "../colours";
import { type State, mode } from "../state";
import { change } from "../store";
import { bytes, count, exact, percent, several, time } from "../units";
import { functionName } from "../work/stacks";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { bandName } from "./series";
import { type Choice, Choices, Empty, NotCompared, Problem, WholeOnly } from "./parts";

type Top = { function: string | null; short?: string | null; module?: string | null; allocations: number; allocated_bytes?: number; bytes?: number };
type Sizes = { from: number[]; to: number[]; top?: Top[][] } & Record<string, number[]>;

/** `key`: the function of a part, if it is one. */
type Part = { name: string; colour: string; amount: number; note: string; key?: string };
type Bar = { from: number; to: number; label: string; amount: number; parts: Part[]; note: string; filter: Partial<State> };

const FREED = "#2f6fe4";
const STILL_LIVE = "#b8356f";

/** The functions of a bucket. The lines of one function are one part. */
const partsOf = (top: Top[]): Part[] => {
  const known = new Map<string, Top>();
  for (const one of top) {
    const key = functionName({ function: one.function, module: one.module ?? null });
    const first = known.get(key);
    known.set(key, first ? { ...first, allocations: first.allocations + one.allocations, allocated_bytes: (first.allocated_bytes ?? 0) + (one.allocated_bytes ?? 0) } : one);
  }
  return [...known].map(([key, one]) => {
    const level = { function: one.function, short: one.short ?? null, module: one.module ?? null };
    const size = one.allocated_bytes === undefined ? "" : ` of ${bytes(one.allocated_bytes)}, ${bytes(one.allocated_bytes / Math.max(1, one.allocations))} each`;
    return { name: bandName(level), colour: functionColour(level), amount: one.allocations, note: `${exact(one.allocations)} allocations${size}`, key };
  });
};

/** The legend: the colours of functions. */
const Functions = ({ bars }: { bars: Bar[] }): JSX.Element | null => {
  const known = new Map<string, Part & { all: number }>();
  for (const part of bars.flatMap((bar) => bar.parts)) if (part.key !== undefined && part.amount > 0) known.set(part.key, { ...part, all: (known.get(part.key)?.all ?? 0) + part.amount });
  const list = [...known.values()].sort((a, b) => b.all - a.all).slice(0, MOST_NAMED);
  if (list.length === 0) return null;
  return (
    <div class="legend" aria-label="Functions by colour">
      {list.map((part) => (
        <span key={part.key} class="legend-entry" title={part.name} data-function={part.key} data-colour={part.colour}>
          <i style={{ background: part.colour }} />
          <span class="legend-name">{part.name}</span>
        </span>
      ))}
      <span class="legend-entry">
        <i style={{ background: "#b7bfcc" }} />
        other
      </span>
    </div>
  );
};
const MOST_NAMED = 12;

type HistogramProps = {
  title: string;
  /** What the buckets are. */
  hint: string;
  value: State["measure"];
  choices: Choice<State["measure"]>[];
  error: string | undefined;
  bars: Bar[] | undefined;
  legend: JSX.Element;
};

/** A view of bars, with the choice of what they show. */
const Histogram = ({ title, hint, value, choices, error, bars, legend }: HistogramProps): JSX.Element => {
  const { status } = usePage();
  return (
    <section class="view" aria-label={title}>
      <div class="tools">
        <Choices label="What the bars show" value={value} choices={choices} onChange={(next) => change({ measure: next })} />
        <span class="hint">
          {hint} · {status.report ? "whole session" : "click a bar to see only these blocks"}
        </span>
      </div>
      <NotCompared />
      <WholeOnly what={title.toLowerCase()} />
      {error && <Problem text={error} />}
      {bars && legend}
      {bars && <Bars title={title} bars={bars} format={value === "allocations" ? count : bytes} canFilter={!status.report} />}
    </section>
  );
};

export const SizesView = (): JSX.Element => {
  const { state, ask, status, peak } = usePage();
  const answer = useRaw("sizes", ask.query);
  const data = answer.value as unknown as Sizes | undefined;
  const isMoment = mode(state) === "moment" && !status.report;
  const measure = isMoment ? "live_bytes" : state.measure;
  const bars: Bar[] = (data?.from ?? []).map((from, index) => {
    const to = data?.to[index] ?? from;
    const calls = data?.allocations?.[index] ?? 0;
    const sum = data?.allocated_bytes?.[index] ?? 0;
    const top = measure === "allocations" ? (data?.top?.[index] ?? []) : [];
    return {
      from,
      to,
      label: sizeLabel(from, to),
      amount: data?.[measure]?.[index] ?? 0,
      parts: peak ? partsOf(top) : [],
      note: isMoment ? bytes(data?.live_bytes?.[index] ?? 0) : `${calls > 0 ? `${exact(calls)} allocations, ${bytes(sum)} in total, ${bytes(sum / calls)} each; ` : ""}at the peak ${bytes(data?.peak_bytes?.[index] ?? 0)}, live at the end ${bytes(data?.live_bytes?.[index] ?? 0)}`,
      filter: { size: `${from}..${to}` },
    };
  });
  return (
    <Histogram
      title="Sizes"
      hint="requested size of a block"
      value={measure}
      choices={
        isMoment
          ? [{ value: "live_bytes", text: "live bytes" }]
          : [
              { value: "allocations", text: "allocations" },
              { value: "allocated_bytes", text: "bytes" },
              { value: "peak_bytes", text: "at the peak" },
              { value: "live_bytes", text: "live at end" },
            ]
      }
      error={answer.error}
      bars={data && bars}
      legend={<Functions bars={bars} />}
    />
  );
};

type Lifetimes = { from: number[]; to: number[] } & Record<string, number[]>;

export const LifetimesView = (): JSX.Element => {
  const { state, ask } = usePage();
  const answer = useRaw("lifetimes", ask.query);
  const data = answer.value as unknown as Lifetimes | undefined;
  const isBytes = state.measure !== "allocations";
  const freed = isBytes ? "freed_bytes" : "deallocations";
  const live = isBytes ? "live_bytes" : "live_allocations";
  const format = isBytes ? bytes : count;
  const bars: Bar[] = (data?.from ?? []).map((from, index) => {
    const to = data?.to[index] ?? from;
    const dead = data?.[freed]?.[index] ?? 0;
    const alive = data?.[live]?.[index] ?? 0;
    return {
      from,
      to,
      // The time of events is known to 0.1 ms.
      label: to < 100_000 ? `< ${time(131_072)}` : `${time(from)} – ${time(to + 1)}`,
      amount: dead + alive,
      parts: [
        { name: "freed", colour: FREED, amount: dead, note: `${format(dead)} freed after this long` },
        { name: "still live", colour: STILL_LIVE, amount: alive, note: `${format(alive)} still live, this old` },
      ],
      note: lifetimeNote({ freed: data?.deallocations?.[index] ?? 0, freedBytes: data?.freed_bytes?.[index] ?? 0, live: data?.live_allocations?.[index] ?? 0, liveBytes: data?.live_bytes?.[index] ?? 0 }),
      filter: { lifetime: `${from}..${to}` },
    };
  });
  joinShort(bars, format);
  return (
    <Histogram
      title="Lifetimes"
      hint="time from allocation to free"
      value={isBytes ? "allocated_bytes" : "allocations"}
      choices={[
        { value: "allocations", text: "blocks" },
        { value: "allocated_bytes", text: "bytes" },
      ]}
      error={answer.error}
      bars={data && bars}
      legend={
        <div class="legend">
          <span class="legend-entry">
            <i style={{ background: FREED }} />
            freed after this long
          </span>
          <span class="legend-entry">
            <i style={{ background: STILL_LIVE }} />
            still live, this old
          </span>
        </div>
      }
    />
  );
};

const lifetimeNote = ({ freed, freedBytes, live, liveBytes }: Record<"freed" | "freedBytes" | "live" | "liveBytes", number>): string =>
  [freed > 0 && `${several(freed, "block")} of ${bytes(freedBytes)} freed after this long`, live > 0 && `${several(live, "block")} of ${bytes(liveBytes)} still live, this old`].filter(Boolean).join("; ");

/** Joins the buckets of lifetimes below 131 µs (2^17 ns) to one, because the time of events is known only to 0.1 ms. */
const joinShort = (bars: Bar[], format: (value: number) => string): void => {
  const short = bars.filter((bar) => bar.to < 131_072);
  if (short.length < 2) return;
  const sum = (of: (bar: Bar) => number): number => short.reduce((all, bar) => all + of(bar), 0);
  const [first] = short;
  if (!first) return;
  const to = Math.max(...short.map((bar) => bar.to));
  const joined: Bar = {
    ...first,
    to,
    amount: sum((bar) => bar.amount),
    parts: first.parts.map((part, place) => {
      const amount = sum((bar) => bar.parts[place]?.amount ?? 0);
      return { ...part, amount, note: `${format(amount)} ${part.name}${part.name === "freed" ? " after this long" : ", this old"}` };
    }),
    note: short.map((bar) => bar.note).filter(Boolean).join("; "),
    filter: { lifetime: `..${to}` },
  };
  bars.splice(0, short.length, joined);
};

/** Small sizes are written in full, because buckets are powers of two and units are powers of 1000. */
const sizeLabel = (from: number, to: number): string => {
  if (from === to) return `${exact(from)} B`;
  return to < 100_000 ? `${exact(from)} – ${exact(to)} B` : `${bytes(from)} – ${bytes(to)}`;
};

const Bars = ({ title, bars, format, canFilter }: { title: string; bars: Bar[]; format: (value: number) => string; canFilter: boolean }): JSX.Element => {
  const first = bars.findIndex((bar) => bar.amount > 0);
  if (first < 0) return <Empty>No blocks to show.</Empty>;
  const last = bars.findLastIndex((bar) => bar.amount > 0);
  const shown = bars.slice(first, last + 1);
  const top = Math.max(...shown.map((bar) => bar.amount));
  const all = shown.reduce((sum, bar) => sum + bar.amount, 0);
  return (
    <table class="card bars" aria-label={title}>
      <tbody>
        {shown.map((bar) => {
          const rest = bar.amount - bar.parts.reduce((sum, part) => sum + part.amount, 0);
          return (
            <tr key={bar.from}>
              <th scope="row">{bar.label}</th>
              <td class="bars-bar">
                <button type="button" disabled={!canFilter || bar.amount === 0} title={`${bar.note}${canFilter ? "\nClick to see only these blocks" : ""}`} aria-label={`${bar.label}: ${bar.note}`} onClick={() => change(bar.filter)}>
                  {bar.parts.map((part) => part.amount > 0 && <i key={part.key ?? part.name} style={{ width: `${(part.amount / top) * 100}%`, background: part.colour }} data-function={part.key} data-colour={part.colour} title={`${part.name}: ${part.note}`} />)}
                  {rest > 0 && <i class={bar.parts.length > 0 ? "rest" : ""} style={{ width: `${(rest / top) * 100}%` }} />}
                </button>
              </td>
              <td class="number" data-number={`bar ${title}`} data-value={bar.amount} data-from={bar.from} data-to={bar.to}>
                {format(bar.amount)}
              </td>
              <td class="number share">{percent(bar.amount / all)}</td>
              <td class="bars-note">{bar.parts[0] && bar.parts[0].amount > 0 && bar.parts[0].name !== "freed" ? bar.parts[0].name : ""}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
};
