// The first screen: whose code held the peak, what is never freed and why, what is allocated most, and what is thrown away at once.
import type { JSX } from "preact";
import { COSTS, type Cost, value } from "../costs";
import { nameOf, where } from "../names";
import { change } from "../store";
import { bytes, count, lifetime, percent, several, show, signed } from "../units";
import type { Entry, Overview } from "../work/protocol";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { nameKey } from "./figures";
import { MiniFlame } from "./flame";
import { type Leak, VerdictBadge, leakNote } from "./leaks";
import { Suppressions } from "./suppressions";

const SHOWN = innerHeight > 1150 ? 8 : 4;

export const Summary = ({ overview }: { overview: Overview }): JSX.Element => {
  const { mode, status } = usePage();
  if (mode === "moment")
    return (
      <div class="summary">
        <List title="Live at this moment" hint="blamed on your code" cost="live_bytes" overview={overview} />
        <List title="Most blocks" hint="live at this moment" cost="live_allocations" overview={overview} />
        <MiniFlame cost="live_bytes" />
      </div>
    );
  return (
    <div class="summary">
      <List title={mode === "session" ? "Held at the peak" : "Held at the range's peak"} hint="blamed on your code" cost="peak_bytes" overview={overview} />
      {mode === "session" ? <Judged overview={overview} /> : <List title="Grown in the range" hint="live at its end minus live at its start" cost="growth_bytes" overview={overview} />}
      <List title="Allocated most" hint="and thrown away?" cost="allocations" overview={overview} />
      <List title="Temporary" hint="freed before the next allocation" cost="temporary" overview={overview} />
      <MiniFlame cost="peak_bytes" />
      {mode === "session" && <Suppressions />}
      {status.report && status.report.notes.length > 0 && <p class="hint">{status.report.notes.join(" ")}</p>}
    </div>
  );
};

const noteOf = (entry: Entry, cost: Cost): string => {
  const parts = [where(entry.level)];
  const calls = value(entry.sums, "allocations");
  if (cost === "allocations") {
    if (value(entry.sums, "deallocations") > 0) parts.push(`mean life ${lifetime(value(entry.sums, "mean_lifetime"))}`);
    if (calls > 0) parts.push(`${bytes(value(entry.sums, "average"))} each`);
  } else if (cost === "temporary") parts.push(`${percent(value(entry.sums, "temporary") / Math.max(1, calls))} of its ${count(calls)} are freed at once`);
  else {
    const blocks = value(entry.sums, cost === "live_bytes" ? "live_allocations" : "peak_allocations");
    if (blocks > 0 && cost !== "growth_bytes") parts.push(several(blocks, "block"));
    const via = entry.via.map((level) => nameOf(level, false)).filter((name) => !name.includes("allocate"));
    const last = via[via.length - 1];
    if (last) parts.push(`via ${last}`);
  }
  return parts.filter(Boolean).join(" · ");
};

const List = ({ title, hint, cost, overview }: { title: string; hint: string; cost: Cost; overview: Overview }): JSX.Element => {
  const { state, mode, isDiff, pick } = usePage();
  const { kind } = COSTS[cost];
  const all = value(overview.totals.sums, cost);
  const before = overview.totals.base ? value(overview.totals.base, cost) : 0;
  const most = Math.max(Math.abs(all), Math.abs(before), 1);
  const amount = (entry: Entry): number => value(entry.sums, cost) - (entry.base ? value(entry.base, cost) : 0);
  const list = (overview.lists[cost] ?? []).filter((entry) => (isDiff ? amount(entry) !== 0 : Math.abs(amount(entry)) / most >= 0.01)).slice(0, SHOWN);
  const total = overview.counts[cost] ?? 0;
  return (
    <section class="card list" aria-label={title}>
      <header class="card-head">
        <h2>{title}</h2>
        <span class="hint">{hint}</span>
        <span class="push" />
        <button type="button" class="link" onClick={() => change({ view: "bottom-up", cost, sort: cost, ascending: false })}>
          all {count(total)}
        </button>
      </header>
      {list.length === 0 && <div class="empty">{isDiff ? "Nothing changed." : "Nothing above 1 %."}</div>}
      <ul>
        {list.map((entry) => (
          <li key={entry.key}>
            <button
              type="button"
              class="entry"
              title={`${nameOf(entry.level, true)}\nClick: details. Enter or double click: callers and callees`}
              onClick={() => pick({ title: nameOf(entry.level, true), row: entry, selection: { of: "blamed", key: entry.key } })}
              onDblClick={() => change({ view: "callers", fn: nameKey(entry, state) })}
            >
              <span class="entry-name">{nameOf(entry.level, false)}</span>
              <span class="entry-value">{isDiff || cost === "growth_bytes" ? signed(amount(entry), kind) : show(amount(entry), kind)}</span>
              <span class="entry-share">{percent(amount(entry) / most)}</span>
              <span class="entry-note">{noteOf(entry, cost)}</span>
              <span class="bar" aria-hidden="true">
                <i class={amount(entry) < 0 ? "less" : ""} style={{ width: `${Math.min(100, (Math.abs(amount(entry)) / most) * 100)}%` }} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {mode === "session" && total > list.length && list.length > 0 && <p class="hint foot">{count(total - list.length)} more, each below the last one shown</p>}
    </section>
  );
};

/** Leaks with a verdict: a cache is not a leak. */
const Judged = ({ overview }: { overview: Overview }): JSX.Element => {
  const { ask, isDiff, pick } = usePage();
  const answer = useRaw(isDiff ? undefined : "leaks", ask.query);
  if (isDiff || answer.error) return <List title="Never freed" hint="blamed on your code" cost="leaked_bytes" overview={overview} />;
  const sites = ((answer.value?.sites as Leak[] | undefined) ?? []).filter((site) => !site.suppressed);
  const all = Math.max(1, value(overview.totals.sums, "leaked_bytes"));
  const list = sites.filter((site) => site.live_bytes / all >= 0.01).slice(0, SHOWN);
  return (
    <section class="card list" aria-label="Never freed, judged">
      <header class="card-head">
        <h2>Never freed, judged</h2>
        <span class="hint">a cache is not a leak</span>
        <span class="push" />
        <button type="button" class="link" onClick={() => change({ view: "leaks" })}>
          all {count(sites.length)}
        </button>
      </header>
      {answer.value && list.length === 0 && <div class="empty">Everything was freed.</div>}
      <ul>
        {list.map((site) => {
          const entry = (overview.lists.leaked_bytes ?? []).find((other) => other.level.function === site.function && other.level.module === site.module);
          return (
            <li key={`${site.function} ${site.module}`}>
              <button
                type="button"
                class="entry"
                title={`${site.function ?? ""}\n${site.reason}`}
                onClick={() => entry && pick({ title: nameOf(entry.level, true), row: entry, selection: { of: "blamed", key: entry.key } })}
                onDblClick={() => change({ view: "callers", fn: site.function ?? "" })}
              >
                <span class="entry-name">
                  {entry ? nameOf(entry.level, false) : (site.short ?? site.function ?? "[unknown]")} <VerdictBadge verdict={site.verdict} />
                </span>
                <span class="entry-value">{bytes(site.live_bytes)}</span>
                <span class="entry-share">{percent(site.live_bytes / all)}</span>
                <span class="entry-note">{leakNote(site)}</span>
                <span class="bar" aria-hidden="true">
                  <i class={`verdict-${site.verdict}`} style={{ width: `${Math.min(100, (site.live_bytes / all) * 100)}%` }} />
                </span>
              </button>
            </li>
          );
        })}
      </ul>
    </section>
  );
};
