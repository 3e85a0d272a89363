// The cards at the top, which answer the first questions.
import type { JSX } from "preact";
import { type Cost, knows, name as nameOfCost, value } from "../costs";
import { PEAK, type State, filtered, isOtherTrace } from "../state";
import { change } from "../store";
import { byteRate, bytes, count, exact, percent, rate, several, signed, time } from "../units";
import type { Overview } from "../work/protocol";
import type { Level } from "../work/stacks";
import { nameOf, where } from "../names";
import { isProfile, usePage } from "./context";
import { Label, Num } from "./number";
import { usePatient } from "./raw";

const Card = ({ name, figure, note, title, isText, onClick }: { name: string; figure: JSX.Element | string; isText?: boolean; note: JSX.Element | string; title: string; onClick?: (() => void) | undefined }): JSX.Element => {
  const inner = (
    <>
      <span class="figure-name">{name}</span>
      <strong class={isText ? "figure text" : "figure"}>{figure}</strong>
      <span class="figure-note">{note}</span>
    </>
  );
  return onClick ? (
    <button type="button" class="card figure-card" title={title} onClick={onClick}>
      {inner}
    </button>
  ) : (
    <div class="card figure-card" title={title}>
      {inner}
    </div>
  );
};

/** About 1 ms, at the border of two buckets of `lifetimes`: 2^20 ns. */
const SHORT_LIVED_NS = 1 << 20;

type Lifetimes = { from: number[]; to: number[]; deallocations: number[] };
type Format = (amount: number) => string;

/** The totals of what is shown, each as an element with its name. */
const totalsIn = (overview: Overview, isDiff: boolean) => {
  const { sums, base } = overview.totals;
  const now = (cost: Cost): number => value(sums, cost);
  const before = (cost: Cost): number => (base ? value(base, cost) : 0);
  const one = (cost: Cost, format: Format): JSX.Element => (
    <Num of={cost} value={now(cost)}>
      {format(now(cost))}
    </Num>
  );
  const figure = (cost: Cost, format: Format, kind: "bytes" | "count"): JSX.Element =>
    isDiff ? (
      <Num of={`${cost} change`} value={now(cost) - before(cost)}>
        {signed(now(cost) - before(cost), kind)}
      </Num>
    ) : (
      one(cost, format)
    );
  const beforeAndAfter = (cost: Cost, format: Format): JSX.Element => (
    <>
      <Num of={`${cost} before`} value={before(cost)}>
        {format(before(cost))}
      </Num>{" "}
      → {one(cost, format)}
    </>
  );
  /** The figure and the note of a card. `note` is that of one trace. */
  const card = (cost: Cost, format: Format, kind: "bytes" | "count", note: JSX.Element | string): { figure: JSX.Element; note: JSX.Element | string } => ({
    figure: figure(cost, format, kind),
    note: isDiff ? beforeAndAfter(cost, format) : note,
  });
  return { now, before, one, card };
};

/** If blocks were sampled: half the width of the 95 % interval of a total. It is known of all blocks in the whole session. */
const Within = ({ of, format }: { of: Cost; format: Format }): JSX.Element | null => {
  const { state, trace, mode, isDiff } = usePage();
  const error = trace.session?.sampling?.totals_error[of];
  if (error === undefined || isDiff || mode !== "session" || filtered(state)) return null;
  return (
    <>
      ±{" "}
      <Num of={`${of} error`} value={error}>
        {format(error)}
      </Num>{" "}
      ·{" "}
    </>
  );
};

const Share = ({ of, part, all }: { of: string; part: number; all: number }): JSX.Element => (
  <Num of={of} value={part / Math.max(1, all)}>
    {percent(part / Math.max(1, all))}
  </Num>
);

/** The code that holds most, and how much. In a comparison, the code that changed most. */
const Holder = ({ overview, cost, name, title, canOpen }: { overview: Overview; cost: "live_bytes" | "peak_bytes"; name: string; title: string; canOpen: boolean }): JSX.Element => {
  const { state, isDiff } = usePage();
  const [biggest] = overview.lists[cost] ?? [];
  const now = biggest ? value(biggest.sums, cost) : 0;
  const before = biggest?.base ? value(biggest.base, cost) : 0;
  const amount = isDiff ? (
    <>
      <Num of={`holder ${cost} change`} value={now - before}>
        {signed(now - before, "bytes")}
      </Num>
    </>
  ) : (
    <Num of={`holder ${cost}`} value={now}>
      {bytes(now)}
    </Num>
  );
  const note = biggest ? (
    <>
      {amount} · <Label>{where(biggest.level)}</Label>
    </>
  ) : (
    "nothing"
  );
  return <Card isText name={name} figure={biggest ? nameOf(biggest.level, false) : "–"} note={note} title={title} onClick={biggest && canOpen ? () => change({ view: "callers", fn: nameKey(biggest, state) }) : undefined} />;
};

/** The memory of the whole process. It is known only for whole sessions, so a comparison with a moment has none. */
const Rss = (): JSX.Element => {
  const { state, trace, status, isDiff } = usePage();
  const title = "Memory of the whole process in the whole session: heap, stacks, files, and what the recording needs";
  const of = (session: typeof trace.session): number => session?.peak_rss_bytes ?? 0;
  const now = of(trace.session);
  const open = (): void => change({ chart: "rss" });
  if (now === 0) return <Card name="Peak RSS" figure="–" note="not measured" title={title} onClick={open} />;
  const absolute = (
    <Num of="peak_rss_bytes" value={now}>
      {bytes(now)}
    </Num>
  );
  if (isDiff && !isOtherTrace(state.compare)) return <Card name="Peak RSS" figure="–" note={<>{absolute} in the whole session</>} title={title} onClick={open} />;
  if (isDiff) {
    const before = of(status.traces[Number(state.compare)]?.session ?? null);
    if (before === 0) return <Card name="Peak RSS" figure="–" note={<>not measured in the base; {absolute} here</>} title={title} onClick={open} />;
    const note = (
      <>
        <Num of="peak_rss_bytes before" value={before}>
          {bytes(before)}
        </Num>{" "}
        → {absolute}
      </>
    );
    const figure = (
      <Num of="peak_rss_bytes change" value={now - before}>
        {signed(now - before, "bytes")}
      </Num>
    );
    return <Card name="Peak RSS" figure={figure} note={note} title={title} onClick={open} />;
  }
  const { overhead_bytes: ours = 0, system_memory: machine } = trace.session ?? {};
  const note = (
    <>
      {ours > 0 ? (
        <>
          heaptrack's share{" "}
          <Num of="overhead_bytes" value={ours}>
            {bytes(ours)}
          </Num>
        </>
      ) : (
        "of the process"
      )}
      {machine ? (
        <>
          {" "}
          · system memory{" "}
          <Num of="system_memory" value={machine}>
            {bytes(machine)}
          </Num>
        </>
      ) : null}
    </>
  );
  return <Card name="Peak RSS" figure={absolute} note={note} title={title} onClick={open} />;
};

const Moment = ({ overview }: { overview: Overview }): JSX.Element => {
  const { isDiff } = usePage();
  const { now, card } = totalsIn(overview, isDiff);
  const { to_ns } = overview.totals;
  const when = (
    <>
      at{" "}
      <Num of="to_ns" value={to_ns}>
        {time(to_ns)}
      </Num>
    </>
  );
  return (
    <div class="figures">
      <Card name="Live heap" {...card("live_bytes", bytes, "bytes", when)} title={`${exact(now("live_bytes"))} bytes`} />
      <Card name="Live blocks" {...card("live_allocations", count, "count", "not freed yet")} title={exact(now("live_allocations"))} />
      <Holder overview={overview} cost="live_bytes" name={isDiff ? "Changed most" : "Largest owner"} title="The code that holds most" canOpen={false} />
    </div>
  );
};

/** Blocks that were freed soon. In a range some of them may have been allocated before it, so the share is that of all frees. */
const ShortLived = ({ overview }: { overview: Overview }): JSX.Element => {
  const { mode, isDiff, ask, status } = usePage();
  const lifetimes = usePatient("lifetimes", ask.query).value as unknown as Lifetimes | undefined;
  const { now, one, card } = totalsIn(overview, isDiff);
  const length = overview.totals.to_ns - overview.totals.from_ns;
  const of = mode === "session" ? "allocations" : "deallocations";
  const all = now(of);
  const temporary = now("temporary");
  const share = <Share of={`temporary / ${of}`} part={temporary} all={all} />;
  const told = percent(temporary / Math.max(1, all));
  const title = `Temporary: ${exact(temporary)} (${told} of ${of === "allocations" ? of : "frees"}, ${rate(temporary, length)}), freed by their own thread before it allocated anything else. Click: lifetimes`;
  const open = (): void => change({ view: "lifetimes" });
  if (isDiff) return <Card name="Temporary" {...card("temporary", count, "count", "")} title={title} onClick={open} />;
  const short = lifetimes?.deallocations.reduce((sum, amount, index) => ((lifetimes.to[index] ?? 0) < SHORT_LIVED_NS ? sum + amount : sum), 0);
  if (short === undefined || status.report) {
    const note = (
      <>
        {share} of {of === "allocations" ? of : "frees"} ·{" "}
        <Num of="temporary / s" value={temporary / (length / 1e9)}>
          {rate(temporary, length)}
        </Num>
      </>
    );
    return <Card name="Temporary" figure={one("temporary", count)} note={note} title={title} onClick={open} />;
  }
  const note = (
    <>
      <Share of={`short_lived / ${of}`} part={short} all={all} />
      {of === "allocations" ? "" : " of frees"} · temporary {one("temporary", count)} ({share})
    </>
  );
  const figureShort = (
    <Num of="short_lived" value={short}>
      {count(short)}
    </Num>
  );
  return <Card name="Short-lived (under 1 ms)" figure={figureShort} note={note} title={title} onClick={open} />;
};

const Peak = ({ overview }: { overview: Overview }): JSX.Element => {
  const { state, mode, isDiff } = usePage();
  const { now, card } = totalsIn(overview, isDiff);
  const isWhole = mode === "session";
  const peakTime = overview.totals.answer.peak_time_ns ?? 0;
  const note = (
    <>
      <Within of="peak_bytes" format={bytes} />
      at{" "}
      <Num of="peak_time_ns" value={peakTime}>
        {time(peakTime)}
      </Num>{" "}
      ·{" "}
      <Num of="peak_allocations" value={now("peak_allocations")}>
        {several(now("peak_allocations"), "block")}
      </Num>
    </>
  );
  // A filter does not move the peak. The peak is the moment at which the whole process held most.
  const name = filtered(state) ? (isWhole ? "At the process's peak" : "At the process's peak in range") : isWhole ? "Peak heap" : "Peak in range";
  return (
    <Card
      name={name}
      {...card("peak_bytes", bytes, "bytes", note)}
      title={`${exact(now("peak_bytes"))} bytes. Click: show what was live then`}
      onClick={isDiff ? undefined : () => change({ at: isWhole ? PEAK : peakTime, from: undefined, to: undefined })}
    />
  );
};

const Leaked = ({ overview }: { overview: Overview }): JSX.Element => {
  const { isDiff } = usePage();
  const { now, card } = totalsIn(overview, isDiff);
  const suppressed = overview.totals.answer.suppressed_bytes ?? 0;
  const note = (
    <>
      <Within of="leaked_bytes" format={bytes} />
      <Num of="leaked_allocations" value={now("leaked_allocations")}>
        {several(now("leaked_allocations"), "block")}
      </Num>
      {suppressed > 0 && (
        <>
          {" "}
          ·{" "}
          <Num of="suppressed_bytes" value={suppressed}>
            {bytes(suppressed)}
          </Num>{" "}
          suppressed
        </>
      )}
    </>
  );
  return (
    <Card
      name="Leaked"
      {...card("leaked_bytes", bytes, "bytes", note)}
      title={`${exact(now("leaked_bytes"))} bytes were not freed at the end. Click: show the verdicts`}
      onClick={() => change({ view: "leaks" })}
    />
  );
};

const Growth = ({ overview }: { overview: Overview }): JSX.Element => {
  const { isDiff } = usePage();
  const { now, before, one } = totalsIn(overview, isDiff);
  const signedBytes = (amount: number): string => signed(amount, "bytes");
  const note = (
    <>
      {one("base_bytes", bytes)} → {one("live_bytes", bytes)}
      {now("kept_bytes") > 0 && <> · {one("kept_bytes", bytes)} kept</>}
    </>
  );
  const title = "Live at the end of the range minus live at its start; kept: allocated in the range and live at its end";
  // Growth is a difference already. So a comparison shows both values and not the difference between them.
  if (isDiff) {
    const inBase = (
      <>
        <Num of="growth_bytes before" value={before("growth_bytes")}>
          {signedBytes(before("growth_bytes"))}
        </Num>{" "}
        in the base
      </>
    );
    return <Card name="Growth here" figure={one("growth_bytes", signedBytes)} note={inBase} title={title} />;
  }
  return <Card name="Growth" figure={one("growth_bytes", signedBytes)} note={note} title={title} />;
};

const Allocations = ({ overview }: { overview: Overview }): JSX.Element => {
  const { isDiff } = usePage();
  const { now, one, card } = totalsIn(overview, isDiff);
  const length = overview.totals.to_ns - overview.totals.from_ns;
  const note = (
    <>
      <Within of="allocations" format={count} />
      {length > 0 && (
        <>
          <Num of="allocations / s" value={now("allocations") / (length / 1e9)}>
            {rate(now("allocations"), length)}
          </Num>{" "}
          ·{" "}
        </>
      )}
      {one("allocated_bytes", bytes)} in total
    </>
  );
  return (
    <Card
      name="Allocations"
      {...card("allocations", count, "count", note)}
      title={`${exact(now("allocations"))} calls, ${exact(now("deallocations"))} frees; ${byteRate(now("allocated_bytes"), length)}`}
      onClick={() => change({ view: "allocations" })}
    />
  );
};

/** The totals that a heap profile of another tool knows. */
const Profile = ({ overview }: { overview: Overview }): JSX.Element => {
  const { isDiff } = usePage();
  const { now, one, card } = totalsIn(overview, isDiff);
  const blocks = (cost: Cost): JSX.Element | string => (knows(cost) ? <>{one(cost, count)} blocks</> : "the number of blocks is not known");
  const cards: [Cost, Cost, string][] = [
    ["leaked_bytes", "leaked_allocations", "Live when the profile was written"],
    ["peak_bytes", "peak_allocations", nameOfCost("peak_bytes", "session")],
    ["allocated_bytes", "allocations", nameOfCost("allocated_bytes", "session")],
  ];
  return (
    <div class="figures">
      {cards
        .filter(([cost]) => knows(cost))
        .map(([cost, number, name]) => (
          <Card key={cost} name={name} {...card(cost, bytes, "bytes", blocks(number))} title={`${exact(now(cost))} bytes`} />
        ))}
    </div>
  );
};

export const Figures = ({ overview }: { overview: Overview }): JSX.Element => {
  const { mode, isDiff, trace } = usePage();
  if (isProfile(trace)) return <Profile overview={overview} />;
  if (mode === "moment") return <Moment overview={overview} />;
  return (
    <div class="figures">
      <Peak overview={overview} />
      {mode === "session" ? <Leaked overview={overview} /> : <Growth overview={overview} />}
      <Allocations overview={overview} />
      <ShortLived overview={overview} />
      <Holder overview={overview} cost="peak_bytes" name={isDiff ? "Changed most at peak" : "Largest owner at peak"} title="The code that held most when the heap was at its largest" canOpen />
      <Rss />
    </div>
  );
};

/** A function as the address names it. In two traces, one name may be two functions, so the file is appended. */
export const nameKey = ({ level }: { level: Level }, { compare }: State): string => {
  const name = level.function ?? level.short ?? "";
  return isOtherTrace(compare) && name && level.file ? `${name}\t${level.file}` : name;
};
