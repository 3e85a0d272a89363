// Sizes and lifetimes: bars over buckets of powers of two. A click filters everything to that bucket.
import type { JSX } from "preact";
import { bandColour } from "../colours";
import { type State, mode } from "../state";
import { change, useAsk } from "../store";
import { bytes, count, exact, percent, time } from "../units";
import { usePage } from "./context";
import { bandName } from "./series";
import { Choices, Empty, Problem } from "./parts";

type Top = { function: string | null; short?: string | null; module?: string | null; allocations: number; allocated_bytes?: number; bytes?: number };
type Sizes = { from: number[]; to: number[]; top?: Top[][] } & Record<string, number[]>;

type Bar = { from: number; to: number; label: string; amount: number; parts: { name: string; amount: number; note: string }[]; note: string; filter: Partial<State> };

export const SizesView = (): JSX.Element => {
  const { state, ask, status } = usePage();
  const answer = useAsk("raw", { view: "sizes", trace: state.file, query: ask.query });
  const data = answer.value as unknown as Sizes | undefined;
  const isMoment = mode(state) === "moment";
  const measure = isMoment ? "live_bytes" : state.measure;
  const isBytes = measure !== "allocations";
  const format = isBytes ? bytes : count;
  const bars: Bar[] = (data?.from ?? []).map((from, index) => {
    const to = data?.to[index] ?? from;
    const calls = data?.allocations?.[index] ?? 0;
    const sum = data?.allocated_bytes?.[index] ?? 0;
    const top = measure === "allocations" ? (data?.top?.[index] ?? []) : [];
    return {
      from,
      to,
      label: from === to ? bytes2(from) : `${bytes2(from)} – ${bytes2(to)}`,
      amount: data?.[measure]?.[index] ?? 0,
      parts: top.map((one) => ({ name: bandName({ function: one.function, short: one.short ?? null, module: one.module ?? null }), amount: one.allocations, note: `${exact(one.allocations)} allocations${one.allocated_bytes !== undefined ? ` of ${bytes(one.allocated_bytes)}, ${bytes(one.allocated_bytes / Math.max(1, one.allocations))} each` : ""}` })),
      note: isMoment ? bytes(data?.live_bytes?.[index] ?? 0) : `${exact(calls)} allocations of ${bytes(sum)} in all, ${bytes(calls > 0 ? sum / calls : 0)} each; at the peak ${bytes(data?.peak_bytes?.[index] ?? 0)}, live at the end ${bytes(data?.live_bytes?.[index] ?? 0)}`,
      filter: { size: `${from}..${to}` },
    };
  });
  return (
    <section class="view" aria-label="Sizes">
      <div class="tools">
        <Choices
          label="What the bars show"
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
          onChange={(next) => change({ measure: next })}
        />
        <span class="hint">requested size of a block · {status.report ? "whole session" : "click a bar = only such blocks"}</span>
      </div>
      {answer.error && <Problem text={answer.error} />}
      {data && <Bars title="Sizes" bars={bars} format={format} canFilter={!status.report} />}
    </section>
  );
};

type Lifetimes = { from: number[]; to: number[] } & Record<string, number[]>;

export const LifetimesView = (): JSX.Element => {
  const { state, ask, status } = usePage();
  const answer = useAsk("raw", { view: "lifetimes", trace: state.file, query: ask.query });
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
      // Events know their time to 0.1 ms.
      label: to < 100_000 ? `< ${time(131_072)}` : `${time(from)} – ${time(to + 1)}`,
      amount: dead + alive,
      parts: [
        { name: "freed", amount: dead, note: `${format(dead)} freed after so long` },
        { name: "still live", amount: alive, note: `${format(alive)} live for so long` },
      ],
      note: `${exact(data?.deallocations?.[index] ?? 0)} blocks of ${bytes(data?.freed_bytes?.[index] ?? 0)} were freed after so long; ${exact(data?.live_allocations?.[index] ?? 0)} of ${bytes(data?.live_bytes?.[index] ?? 0)} are live for so long`,
      filter: { lifetime: `${from}..${to}` },
    };
  });
  joinShort(bars, format);
  return (
    <section class="view" aria-label="Lifetimes">
      <div class="tools">
        <Choices
          label="What the bars show"
          value={isBytes ? "allocated_bytes" : "allocations"}
          choices={[
            { value: "allocations", text: "blocks" },
            { value: "allocated_bytes", text: "bytes" },
          ]}
          onChange={(next) => change({ measure: next })}
        />
        <span class="hint">time from allocation to free · {status.report ? "whole session" : "click a bar = only such blocks"}</span>
      </div>
      {answer.error && <Problem text={answer.error} />}
      {data && (
        <div class="legend">
          <span class="legend-entry">
            <i style={{ background: "#2f6fe4" }} />
            freed after so long
          </span>
          <span class="legend-entry">
            <i style={{ background: "#b8356f" }} />
            still live, for so long
          </span>
        </div>
      )}
      {data && <Bars title="Lifetimes" bars={bars} format={format} canFilter={!status.report} />}
    </section>
  );
};

/** Buckets below what the clock can tell are one. */
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
      return { ...part, amount, note: `${format(amount)} ${part.name} after so long` };
    }),
    note: short.map((bar) => bar.note).join("; "),
    filter: { lifetime: `..${to}` },
  };
  bars.splice(0, short.length, joined);
};

const bytes2 = (value: number): string => {
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let number = (value + (value % 2)) / 1024;
  while (number >= 1024 && unit + 1 < units.length) {
    number /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(number) ? number : number.toFixed(1)} ${units[unit]}`;
};

const Bars = ({ title, bars, format, canFilter }: { title: string; bars: Bar[]; format: (value: number) => string; canFilter: boolean }): JSX.Element => {
  const first = bars.findIndex((bar) => bar.amount > 0);
  if (first < 0) return <Empty>Nothing here.</Empty>;
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
                <button type="button" disabled={!canFilter || bar.amount === 0} title={`${bar.note}${canFilter ? "\nClick: only such blocks" : ""}`} aria-label={`${bar.label}: ${bar.note}`} onClick={() => change(bar.filter)}>
                  {bar.parts.map((part) => part.amount > 0 && <i key={part.name} style={{ width: `${(part.amount / top) * 100}%`, background: part.name === "still live" ? "#b8356f" : part.name === "freed" ? "#2f6fe4" : bandColour(part.name) }} title={`${part.name}: ${part.note}`} />)}
                  {rest > 0 && <i class={bar.parts.length > 0 ? "rest" : ""} style={{ width: `${(rest / top) * 100}%` }} />}
                </button>
              </td>
              <td class="number">{format(bar.amount)}</td>
              <td class="number share">{percent(bar.amount / all)}</td>
              <td class="bars-note">{bar.parts[0] && bar.parts[0].amount > 0 && bar.parts[0].name !== "freed" ? bar.parts[0].name : ""}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
};
