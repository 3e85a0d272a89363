// What was not freed, site by site, with a verdict and what it rests on.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { base } from "../names";
import { change } from "../store";
import { bytes, count, exact, percent, time } from "../units";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { type Column, Grid } from "./grid";
import { Choices, Problem, copy } from "./parts";

export type Verdict = "grows" | "bounded" | "once" | "exit" | "tail";
export type Leak = {
  function: string | null;
  short?: string | null;
  file: string | null;
  line: number | null;
  module: string | null;
  class: string | null;
  verdict: Verdict;
  reason: string;
  live_bytes: number;
  live_allocations: number;
  allocations: number;
  ratio: number;
  growth_bytes_per_second: number;
  first_ns: number;
  last_ns: number;
  age_ns: number;
  suppressed: boolean;
  stack: number;
  sparkline: number[];
};

export const VERDICTS: Record<Verdict, [string, string]> = {
  grows: ["grows", "It grew all along, and still did at the end: most likely a leak."],
  bounded: ["bounded", "It grew to a size and stayed there: most likely a cache."],
  once: ["once", "Allocated once, early: a singleton or a table."],
  exit: ["at exit", "Came late: held by what was going on when the session ended."],
  tail: ["tail", "Only the last few are live: work in progress, not a leak."],
};

export const VerdictBadge = ({ verdict }: { verdict: Verdict }): JSX.Element => (
  <span class={`badge verdict ${verdict}`} title={VERDICTS[verdict]?.[1]}>
    {VERDICTS[verdict]?.[0] ?? verdict}
  </span>
);

export const leakNote = (leak: Leak): string => {
  const parts = [leak.file ? `${base(leak.file)}${leak.line ? `:${leak.line}` : ""}` : leak.module ? base(leak.module) : ""];
  parts.push(`${exact(leak.live_allocations)} of ${exact(leak.allocations)} kept`);
  if (leak.verdict === "grows" && leak.growth_bytes_per_second > 0) parts.push(`+${bytes(leak.growth_bytes_per_second)}/s`);
  return parts.filter(Boolean).join(" · ");
};

const Spark = ({ values }: { values: number[] }): JSX.Element => {
  const top = Math.max(1, ...values);
  const points = values.map((value, index) => `${((index / Math.max(1, values.length - 1)) * 96).toFixed(1)},${(19 - (value / top) * 17).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 96 20" width="96" height="20" role="img" aria-label={`live over time, ${values.length} points, last ${count(values[values.length - 1] ?? 0)}`}>
      <polyline points={points} fill="none" stroke="currentColor" stroke-width="1.5" />
    </svg>
  );
};

/** A line that LSan understands, and so do we. */
export const suppression = (name: string): string => `leak:${name.replace(/\(.*$/, "").replace(/^.*\s(?=[\w:~]+$)/, "")}`;

export const Leaks = (): JSX.Element => {
  const { state, ask, pick, say } = usePage();
  const [verdict, setVerdict] = useState<"all" | Verdict>("all");
  const [selected, setSelected] = useState<string | undefined>(undefined);
  const answer = useRaw("leaks", ask.query);
  const all = (answer.value?.sites as Leak[] | undefined) ?? [];
  const sites = all.filter((site) => verdict === "all" || site.verdict === verdict);
  const total = Math.max(1, all.reduce((sum, site) => sum + (site.suppressed ? 0 : site.live_bytes), 0));
  const id = (site: Leak): string => `${site.function} ${site.module} ${site.stack}`;
  const number = (name: string, title: string, help: string, width: number, of: (site: Leak) => string, bar?: (site: Leak) => number): Column<Leak> => ({
    id: name,
    title,
    help,
    width,
    numeric: true,
    cell: of,
    text: of,
    ...(bar ? { bar } : {}),
  });
  const columns: Column<Leak>[] = [
    {
      id: "name",
      title: "Site",
      help: "The innermost function in your own code",
      width: 260,
      cell: (site) => (
        <span class={site.suppressed ? "suppressed" : ""} title={site.function ?? ""}>
          {site.short ?? site.function ?? (site.module ? base(site.module) : "[unknown]")} <span class="place">{site.file ? `${base(site.file)}:${site.line ?? "?"}` : ""}</span>
        </span>
      ),
      text: (site) => site.function ?? "",
    },
    { id: "verdict", title: "Verdict", help: "What it looks like; the reason is in the details", width: 92, cell: (site) => (site.suppressed ? <span class="badge">suppressed</span> : <VerdictBadge verdict={site.verdict} />), text: (site) => site.verdict },
    number("live", "Leaked", "Bytes not freed", 120, (site) => bytes(site.live_bytes), (site) => (site.suppressed ? 0 : site.live_bytes / total)),
    number("blocks", "Blocks kept", "Blocks not freed, of those allocated", 150, (site) => `${exact(site.live_allocations)} of ${exact(site.allocations)}`),
    number("ratio", "Kept share", "100 % means that nothing was ever freed", 112, (site) => percent(site.ratio)),
    number("growth", "Growth", "Bytes a second", 100, (site) => (site.growth_bytes_per_second === 0 ? "–" : `${bytes(site.growth_bytes_per_second)}/s`)),
    number("age", "Oldest", "How long the oldest of them was live", 90, (site) => time(site.age_ns)),
    number("first", "First", "First allocation that was kept", 90, (site) => time(site.first_ns)),
    number("last", "Last", "Last allocation that was kept", 90, (site) => time(site.last_ns)),
    { id: "spark", title: "Live over time", help: "From the start to the end of the session", width: 136, cell: (site) => <Spark values={site.sparkline} /> },
  ];
  const one = sites.find((site) => id(site) === selected);
  return (
    <section class="view" aria-label="Leaks">
      <div class="tools">
        <Choices
          label="Verdict"
          value={verdict}
          choices={[{ value: "all", text: `all ${all.length}` }, ...(Object.keys(VERDICTS) as Verdict[]).map((name) => ({ value: name, text: `${VERDICTS[name][0]} ${all.filter((site) => site.verdict === name).length}`, title: VERDICTS[name][1] }))]}
          onChange={setVerdict}
        />
        <span class="push" />
        <label class="switch" title="Leave out what suppressions match">
          <input type="checkbox" checked={state.suppressions} onChange={(event) => change({ suppressions: event.currentTarget.checked })} />
          <span>suppressions</span>
        </label>
        <button
          type="button"
          class="button"
          disabled={!one}
          title="Copies a line in LSan's format; put it into a file for --suppressions"
          onClick={async () => {
            if (!one) return;
            const line = suppression(one.function ?? one.module ?? "");
            say((await copy(`${line}\n`)) ? `Copied: ${line}` : line);
          }}
        >
          Suppress this…
        </button>
      </div>
      {answer.error && <Problem text={answer.error} />}
      {one && (
        <p class="reason" role="status">
          <VerdictBadge verdict={one.verdict} /> {one.reason}
        </p>
      )}
      <Grid
        label="Leaks"
        name="leaks"
        tall
        columns={columns}
        count={sites.length}
        rows={(from, to) => sites.slice(from, to)}
        version={`${verdict} ${answer.busy} ${sites.length}`}
        idOf={id}
        selected={selected}
        onSelect={(site) => {
          setSelected(id(site));
          pick({
            title: site.function ?? site.module ?? "[unknown]",
            row: { level: { ...site, short: site.short ?? null, offset: null, inlined: false }, key: -1, sums: new Float64Array(0), base: undefined },
            selection: { of: "site", stack: site.stack },
          });
        }}
        onOpen={(site) => change({ view: "callers", fn: site.function ?? "" })}
        empty="Everything was freed."
      />
    </section>
  );
};
