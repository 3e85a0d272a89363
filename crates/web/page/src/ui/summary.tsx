// The first screen: which code held the peak, what was not freed and why, what was allocated most often, and what was freed immediately.
import { Fragment, type JSX } from "preact";
import { COSTS, type Cost, FLAMES, type Mode, isPart, knows, largest, value } from "../costs";
import { nameOf, where, whole } from "../names";
import { filtered } from "../state";
import { change } from "../store";
import { bytes, count, lifetime, percent, several, show, signed } from "../units";
import type { Entry, Overview } from "../work/protocol";
import type { Level } from "../work/stacks";
import { isProfile, usePage } from "./context";
import { useRaw } from "./raw";
import { nameKey } from "./figures";
import { MiniFlame } from "./flame";
import { MemoryLine } from "./memory";
import { type Leak, LeakNote, VerdictBadge, isNotFreed } from "./leaks";
import { Label, Num } from "./number";
import { Suppressions } from "./suppressions";
import { Wrappers } from "./wrappers";

const SHOWN = innerHeight > 1150 ? 8 : 4;

/** The lists of a heap profile of another tool. */
const PROFILE: [Cost, string][] = [
  ["leaked_bytes", "Live when the profile was written"],
  ["peak_bytes", "Held at the peak"],
  ["allocated_bytes", "Most bytes allocated"],
  ["allocations", "Most allocations"],
];

export const Summary = ({ overview }: { overview: Overview }): JSX.Element => {
  const { mode, status, look, trace } = usePage();
  const leftOut = status.report?.notes ?? status.notes ?? [];
  const owner = look.levels === "mine" ? "attributed to your code" : "";
  if (isProfile(trace))
    return (
      <div class="summary">
        {PROFILE.filter(([cost]) => knows(cost)).map(([cost, title]) => (
          <List key={cost} title={title} hint={owner} cost={cost} overview={overview} />
        ))}
        <MiniFlame cost={FLAMES.session.find(knows) ?? "leaked_bytes"} />
      </div>
    );
  if (mode === "moment")
    return (
      <div class="summary">
        <List title="Live at this moment" hint={owner} cost="live_bytes" overview={overview} />
        <List title="Most blocks" hint="live at this moment" cost="live_allocations" overview={overview} />
        <MiniFlame cost="live_bytes" />
      </div>
    );
  return (
    <div class="summary">
      <MemoryLine />
      <List title={mode === "session" ? "Held at the peak" : "Held at the range's peak"} hint={owner} cost="peak_bytes" overview={overview} />
      {mode === "session" ? <Judged overview={overview} /> : <List title="Grown in the range" hint="live at its end minus live at its start" cost="growth_bytes" overview={overview} />}
      <List title="Most allocations" hint="short-lived?" cost="allocations" overview={overview} />
      <List title="Temporary" hint="freed before the next allocation" cost="temporary" overview={overview} />
      <MiniFlame cost="peak_bytes" />
      <Wrappers list={overview.wrappers} />
      <Provenance />
      {mode === "session" && <Suppressions />}
      {leftOut.length > 0 && <p class="hint">{leftOut.join(" ")}</p>}
    </div>
  );
};

/** Where the data comes from, for a page that is shared or printed. */
const Provenance = (): JSX.Element | null => {
  const { status, trace } = usePage();
  const { session } = trace;
  if (!session) return null;
  const started = session.started_unix_ns ? `${new Date(session.started_unix_ns / 1e6).toISOString().slice(0, 16).replace("T", " ")} UTC` : undefined;
  const parts = [started && `recorded ${started}`, session.hostname && `on ${session.hostname}`, `by ${session.tool || "an unknown version"}`, `· shown by ${status.tool}`];
  return (
    <p class="hint provenance">
      <code>{session.command.join(" ")}</code> · {parts.filter(Boolean).join(" ")}
    </p>
  );
};

/** The number of blocks that belongs to a number of bytes. */
const BLOCKS: Partial<Record<Cost, Cost>> = { live_bytes: "live_allocations", peak_bytes: "peak_allocations", leaked_bytes: "leaked_allocations" };

/** A further number of an entry, besides the one that the list is sorted by. */
const Part = ({ of, value: amount, children }: { of: string; value: number; children: string }): JSX.Element => (
  <Num of={`entry ${of}`} value={amount}>
    {children}
  </Num>
);

/** The note of an entry: its place, and numbers that explain the main one. */
const notesOf = (entry: Entry, cost: Cost, mode: Mode): JSX.Element[] => {
  const parts = [<Label>{where(entry.level)}</Label>];
  const of = (name: Cost): number => value(entry.sums, name);
  if (cost === "allocations") {
    if (knows("mean_lifetime") && of("deallocations") > 0) parts.push(<Part of="mean_lifetime now" value={of("mean_lifetime")}>{`mean life ${lifetime(of("mean_lifetime"))}`}</Part>);
    if (knows("average") && of("allocations") > 0) parts.push(<Part of="average now" value={of("average")}>{`${bytes(of("average"))} each`}</Part>);
  } else if (cost === "temporary") {
    // In a range, some of these blocks may have been allocated before it.
    const [name, told] = mode === "session" ? (["allocations", "are freed immediately"] as const) : (["deallocations", "frees are immediate"] as const);
    const all = of(name);
    if (all > 0)
      parts.push(
        <>
          <Part of={`temporary / ${name}`} value={of("temporary") / all}>
            {percent(of("temporary") / all)}
          </Part>{" "}
          of its{" "}
          <Part of={`${name} now`} value={all}>
            {count(all)}
          </Part>{" "}
          {told}
        </>,
      );
  } else {
    const blocks = BLOCKS[cost];
    if (blocks && knows(blocks)) parts.push(<Blocks entry={entry} blocks={blocks} />);
    const via = entry.via.map((level) => nameOf(level, false)).filter((name) => !name.includes("allocate"));
    const last = via[via.length - 1];
    if (last) parts.push(<Label>via {last}</Label>);
  }
  return parts;
};

const Blocks = ({ entry, blocks }: { entry: Entry; blocks: Cost }): JSX.Element => {
  const now = value(entry.sums, blocks);
  const before = entry.base && value(entry.base, blocks);
  return (
    <>
      {before !== undefined && (
        <>
          <Part of={`${blocks} before`} value={before}>
            {count(before)}
          </Part>{" "}
          →{" "}
        </>
      )}
      <Part of={`${blocks} now`} value={now}>
        {several(now, "block")}
      </Part>
    </>
  );
};

const List = ({ title, hint, cost, overview }: { title: string; hint: string; cost: Cost; overview: Overview }): JSX.Element => {
  const { state, mode, isDiff, pick } = usePage();
  const { kind } = COSTS[cost];
  const most = Math.max(1, largest(cost, overview.totals.sums, overview.totals.base));
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
          all{" "}
          <Num of={`places ${cost}`} value={total}>
            {count(total)}
          </Num>
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
              data-entry={nameOf(entry.level, true)}
              data-place={whole(entry.level)}
              onClick={() => pick({ title: nameOf(entry.level, true), level: entry.level, selection: { of: "blamed", key: entry.key } })}
              onDblClick={() => change({ view: "callers", fn: nameKey(entry, state) })}
            >
              <span class="entry-name">{nameOf(entry.level, false)}</span>
              <span class="entry-value" data-number={`entry ${cost}`} data-value={amount(entry)}>
                {isDiff || cost === "growth_bytes" ? signed(amount(entry), kind) : show(amount(entry), kind)}
              </span>
              <span class="entry-share">{isPart(cost) && percent(amount(entry) / most)}</span>
              <span class="entry-note">
                {notesOf(entry, cost, mode).map((part, index) => (
                  <Fragment key={index}>
                    {index > 0 && " · "}
                    {part}
                  </Fragment>
                ))}
              </span>
              <span class="bar" aria-hidden="true">
                <i class={amount(entry) < 0 ? "less" : ""} style={{ width: `${Math.min(100, (Math.abs(amount(entry)) / most) * 100)}%` }} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {mode === "session" && total > list.length && list.length > 0 && (
        <p class="hint foot">
          <Num of={`more ${cost}`} value={total - list.length}>
            {count(total - list.length)} smaller
          </Num>
        </p>
      )}
    </section>
  );
};

/** Blocks that were not freed, with a verdict, because a cache is not a leak. */
const Judged = ({ overview }: { overview: Overview }): JSX.Element => {
  const { state, ask, isDiff, look, pick, status } = usePage();
  // A report has verdicts only for all blocks.
  const isUnjudged = isDiff || (status.report !== null && filtered(state));
  const answer = useRaw(isUnjudged ? undefined : "leaks", ask.query);
  if (isUnjudged || answer.error) return <List title="Never freed" hint={look.levels === "mine" ? "attributed to your code" : ""} cost="leaked_bytes" overview={overview} />;
  const sites = ((answer.value?.sites as Leak[] | undefined) ?? []).filter((site) => !site.suppressed && isNotFreed(site));
  const all = Math.max(1, value(overview.totals.sums, "leaked_bytes"));
  const list = sites.filter((site) => site.live_bytes / all >= 0.01).slice(0, SHOWN);
  return (
    <section class="card list" aria-label="Not freed: leak or not?">
      <header class="card-head">
        <h2>Not freed: leak or not?</h2>
        <span class="hint">a cache is not a leak</span>
        <span class="push" />
        <button type="button" class="link" onClick={() => change({ view: "leaks" })}>
          all{" "}
          <Num of="places not freed" value={sites.length}>
            {count(sites.length)}
          </Num>
        </button>
      </header>
      {answer.value && list.length === 0 && <div class="empty">{sites.length === 0 ? "Everything was freed." : "Nothing above 1 %."}</div>}
      <ul>
        {list.map((site) => {
          const level: Level = { ...site, short: site.short ?? null, offset: null, inlined: false };
          return (
            <li key={site.stack}>
              <button
                type="button"
                class="entry"
                title={`${site.function ?? ""}\n${site.reason}`}
                data-entry={nameOf(level, true)}
                data-place={whole(level)}
                onClick={() => pick({ title: nameOf(level, true), level, selection: { of: "site", stack: site.stack, suppressed: false } })}
                onDblClick={() => change({ view: "callers", fn: site.function ?? "" })}
              >
                <span class="entry-name">
                  {nameOf(level, false)} <VerdictBadge verdict={site.verdict} />
                </span>
                <span class="entry-value" data-number="entry leaked_bytes" data-value={site.live_bytes}>
                  {bytes(site.live_bytes)}
                </span>
                <span class="entry-share">{percent(site.live_bytes / all)}</span>
                <span class="entry-note">
                  <LeakNote leak={site} />
                </span>
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
