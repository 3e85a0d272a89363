// The figures: six cards that answer the first questions.
import type { JSX } from "preact";
import { value } from "../costs";
import { PEAK, type State, isOtherTrace } from "../state";
import { change } from "../store";
import { byteRate, bytes, count, exact, percent, rate, several, signed, time } from "../units";
import type { Overview } from "../work/protocol";
import type { Level } from "../work/stacks";
import { nameOf, where } from "../names";
import { usePage } from "./context";
import { usePatient } from "./raw";

const Card = ({ name, figure, note, title, isText, onClick }: { name: string; figure: string; isText?: boolean; note: JSX.Element | string; title: string; onClick?: (() => void) | undefined }): JSX.Element => {
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

/** The end of a bucket: 2^20 ns. */
const SHORT_LIVED_NS = 1 << 20;

type Lifetimes = { from: number[]; to: number[]; deallocations: number[] };

export const Figures = ({ overview }: { overview: Overview }): JSX.Element => {
  const { state, mode, isDiff, ask, trace, status } = usePage();
  const { totals } = overview;
  const lifetimes = usePatient("lifetimes", ask.query).value as unknown as Lifetimes | undefined;
  const session = trace.session;
  const length = totals.to_ns - totals.from_ns;
  const now = (cost: Parameters<typeof value>[1]): number => value(totals.sums, cost);
  const before = (cost: Parameters<typeof value>[1]): number => (totals.base ? value(totals.base, cost) : 0);
  const number = (cost: Parameters<typeof value>[1], format: (n: number) => string, kind: "bytes" | "count"): string => (isDiff ? signed(now(cost) - before(cost), kind) : format(now(cost)));
  const note = (cost: Parameters<typeof value>[1], format: (n: number) => string): string => `${format(before(cost))} → ${format(now(cost))}`;
  const [biggest] = overview.lists[mode === "moment" ? "live_bytes" : "peak_bytes"] ?? [];
  const peakTime = totals.answer.peak_time_ns ?? 0;
  const suppressed = totals.answer.suppressed_bytes ?? 0;
  const allocations = now("allocations");
  const short = lifetimes?.deallocations.reduce((sum, amount, index) => ((lifetimes.to[index] ?? 0) < SHORT_LIVED_NS ? sum + amount : sum), 0);
  const isWhole = mode === "session";
  const rssNote = session ? (session.overhead_bytes > 0 ? `ours ${bytes(session.overhead_bytes)}` : "of the process") : "";
  const system = session?.system_memory ? ` · machine ${bytes(session.system_memory)}` : "";
  if (mode === "moment") {
    return (
      <div class="figures">
        <Card name="Live heap" figure={number("live_bytes", bytes, "bytes")} note={isDiff ? note("live_bytes", bytes) : `at ${time(totals.to_ns)}`} title={`${exact(now("live_bytes"))} bytes`} />
        <Card name="Live blocks" figure={number("live_allocations", count, "count")} note={isDiff ? note("live_allocations", count) : "not freed yet"} title={exact(now("live_allocations"))} />
        <Card isText name={isDiff ? "Changed most" : "Biggest holder"} figure={biggest ? nameOf(biggest.level, false) : "–"} note={biggest ? `${isDiff ? `${bytes(biggest.base ? value(biggest.base, "live_bytes") : 0)} → ` : ""}${bytes(value(biggest.sums, "live_bytes"))} · ${where(biggest.level)}` : ""} title="Whose code holds most" />
      </div>
    );
  }
  return (
    <div class="figures">
      <Card
        name={isWhole ? "Peak heap" : "Peak in range"}
        figure={number("peak_bytes", bytes, "bytes")}
        note={isDiff ? note("peak_bytes", bytes) : `at ${time(peakTime)} · ${several(now("peak_allocations"), "block")}`}
        title={`${exact(now("peak_bytes"))} bytes. Click: what was live then`}
        onClick={isDiff ? undefined : () => change({ at: isWhole ? PEAK : peakTime, from: undefined, to: undefined })}
      />
      {isWhole ? (
        <Card
          name="Leaked"
          figure={number("leaked_bytes", bytes, "bytes")}
          note={isDiff ? note("leaked_bytes", bytes) : `${several(now("leaked_allocations"), "block")}${suppressed > 0 ? ` · ${bytes(suppressed)} suppressed` : ""}`}
          title={`${exact(now("leaked_bytes"))} bytes were not freed at the end. Click: judged`}
          onClick={() => change({ view: "leaks" })}
        />
      ) : (
        <Card
          name="Growth"
          figure={signed(now("growth_bytes"), "bytes")}
          note={`${bytes(now("base_bytes"))} → ${bytes(now("live_bytes"))}${now("kept_bytes") > 0 ? ` · ${bytes(now("kept_bytes"))} kept` : ""}`}
          title="Live at the end of the range minus live at its start; kept: allocated in the range and live at its end"
        />
      )}
      <Card
        name="Allocations"
        figure={number("allocations", count, "count")}
        note={isDiff ? note("allocations", count) : `${rate(allocations, length)} · ${bytes(now("allocated_bytes"))} in all`}
        title={`${exact(allocations)} calls, ${exact(now("deallocations"))} frees; ${byteRate(now("allocated_bytes"), length)}`}
        onClick={() => change({ view: "allocations" })}
      />
      <Card
        name={short === undefined || status.report || isDiff ? "Temporary" : "Short-lived (≤ 1.05 ms)"}
        figure={short === undefined || status.report || isDiff ? number("temporary", count, "count") : count(short)}
        note={isDiff ? note("temporary", count) : short === undefined || status.report ? `${percent(now("temporary") / Math.max(1, allocations))} of allocations · ${rate(now("temporary"), length)}` : `${percent(short / Math.max(1, allocations))} · temporary ${count(now("temporary"))} (${percent(now("temporary") / Math.max(1, allocations))})`}
        title={`Temporary: ${exact(now("temporary"))} (${percent(now("temporary") / Math.max(1, allocations))}, ${rate(now("temporary"), length)}), freed by their own thread before it allocated anything else. Click: lifetimes`}
        onClick={() => change({ view: "lifetimes" })}
      />
      <Card
        isText
        name={isDiff ? "Changed most at peak" : "Biggest holder at peak"}
        figure={biggest ? nameOf(biggest.level, false) : "–"}
        note={biggest ? `${isDiff ? signed(value(biggest.sums, "peak_bytes") - (biggest.base ? value(biggest.base, "peak_bytes") : 0), "bytes") : bytes(value(biggest.sums, "peak_bytes"))} · ${where(biggest.level)}` : "nothing"}
        title="Whose code held most when the heap was at its largest"
        onClick={biggest ? () => change({ view: "callers", fn: nameKey(biggest, state) }) : undefined}
      />
      <Card
        name="Peak RSS"
        figure={session && session.peak_rss_bytes > 0 ? bytes(session.peak_rss_bytes) : "–"}
        note={`${rssNote}${system}`}
        title="Memory of the whole process, of the whole session: heap, stacks, files, and what recording needed"
        onClick={() => change({ chart: "rss" })}
      />
    </div>
  );
};

/** A function as the address has it. Of two traces a name alone may be two functions, so there its file stands behind it. */
export const nameKey = ({ level }: { level: Level }, { compare }: State): string => {
  const name = level.function ?? level.short ?? "";
  return isOtherTrace(compare) && name && level.file ? `${name}\t${level.file}` : name;
};
