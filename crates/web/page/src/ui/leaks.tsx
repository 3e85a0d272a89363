// The places that hold blocks at the end, each with a verdict and its reason.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { base } from "../names";
import { timeless } from "../state";
import { change } from "../store";
import { bytes, count, exact, percent, time } from "../units";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { type Column, ListGrid } from "./grid";
import { Label, Num } from "./number";
import { Choices, NotCompared, Problem, WholeOnly, copy } from "./parts";

export type Verdict = "grows" | "bounded" | "once" | "exit" | "tail" | "unclear";
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
  ratio: number | null;
  growth_bytes_per_second: number;
  /** The first and the last allocation, and the age of the oldest live block. Null if nothing was allocated, or nothing is live. */
  first_ns: number | null;
  last_ns: number | null;
  age_ns: number | null;
  suppressed: string | null;
  stack: number;
  sparkline: number[];
};

/** The label of each verdict, and what it means. docs/analysis.md says the same. */
export const VERDICTS: Record<Verdict, [string, string]> = {
  grows: ["grows", "It grew up to the end: a leak, or a cache without a limit."],
  bounded: ["levelled off", "It reached a level and stays there: most likely a cache."],
  once: ["one-time", "Allocated within a short time, and nothing after that: start-up, a pool, a table."],
  exit: ["freed at exit", "Held up to the end and freed only when the program ended: not a leak."],
  tail: ["in use at end", "In use when the program ended; earlier blocks were freed: most likely not a leak."],
  unclear: ["unclear", "Too few of its blocks were sampled to tell."],
};

/** Whether the place holds blocks at the end. Places that freed everything when the program ended have a verdict, too, but they leak nothing. */
export const isNotFreed = (leak: Leak): boolean => leak.live_allocations > 0;

/** How many blocks are left. In a trace with a size limit (`--max-size`) only the later allocations are counted, and more blocks than that may be live. */
export const keptText = ({ live_allocations: live, allocations }: Leak): string => (live <= allocations ? `${exact(live)} of ${exact(allocations)}` : exact(live));
const isRatioKnown = ({ ratio }: Leak): boolean => ratio !== null && ratio <= 1;

export const VerdictBadge = ({ verdict }: { verdict: Verdict }): JSX.Element => (
  <span class={`badge verdict ${verdict}`} title={VERDICTS[verdict]?.[1]}>
    {VERDICTS[verdict]?.[0] ?? verdict}
  </span>
);

export const LeakNote = ({ leak }: { leak: Leak }): JSX.Element => {
  const place = leak.file ? `${base(leak.file)}${leak.line ? `:${leak.line}` : ""}` : leak.module ? base(leak.module) : "";
  const { live_allocations: live, allocations, growth_bytes_per_second: growth } = leak;
  return (
    <>
      <Label>{place}</Label> ·{" "}
      <Num of="leak live_allocations" value={live}>
        {exact(live)}
      </Num>
      {live <= allocations && (
        <>
          {" "}
          of{" "}
          <Num of="leak allocations" value={allocations}>
            {exact(allocations)}
          </Num>
        </>
      )}{" "}
      kept
      {leak.verdict === "grows" && growth > 0 && (
        <>
          {" "}
          ·{" "}
          <Num of="leak growth_bytes_per_second" value={growth}>
            +{bytes(growth)}/s
          </Num>
        </>
      )}
    </>
  );
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

/** A suppression for this function, in LeakSanitizer's format, which `--suppressions` reads. */
export const suppression = (name: string): string => `leak:${name.replace(/\(.*$/, "").replace(/^.*\s(?=[\w:~]+$)/, "")}`;

/** The width that the longest count needs. */
const widest = (sites: Leak[]): number => Math.max(130, ...sites.map((site) => keptText(site).length * 8 + 24));

export const Leaks = (): JSX.Element => {
  const { state, mode, pick, say } = usePage();
  const [verdict, setVerdict] = useState<"live" | Verdict>("live");
  const [selected, setSelected] = useState<string | undefined>(undefined);
  // A part of the session says little about leaks, so the verdicts are always those of the whole session.
  const answer = useRaw("leaks", timeless(state));
  const all = (answer.value?.sites as Leak[] | undefined) ?? [];
  const isShown = (site: Leak, which: "live" | Verdict): boolean => (which === "live" ? isNotFreed(site) : site.verdict === which);
  const sites = all.filter((site) => isShown(site, verdict));
  const total = Math.max(1, all.reduce((sum, site) => sum + (site.suppressed ? 0 : site.live_bytes), 0));
  const id = (site: Leak): string => `${site.stack} ${site.suppressed ?? ""}`;
  const number = (name: string, title: string, help: string, width: number, of: (site: Leak) => string, exactOf: (site: Leak) => string, bar?: (site: Leak) => number): Column<Leak> => ({
    id: name,
    title,
    help,
    width,
    numeric: true,
    cell: of,
    text: exactOf,
    ...(bar ? { bar } : {}),
  });
  const when = (ns: number | null): string => (ns === null ? "–" : time(ns));
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
    { id: "verdict", title: "Verdict", help: "Whether it looks like a leak; select the row to see the reason", width: 120, cell: (site) => (site.suppressed ? <span class="badge">suppressed</span> : <VerdictBadge verdict={site.verdict} />), text: (site) => site.verdict },
    number("live_bytes", "Leaked", "Bytes not freed", 120, (site) => bytes(site.live_bytes), (site) => String(site.live_bytes), (site) => (site.suppressed ? 0 : site.live_bytes / total)),
    number("live_allocations", "Blocks kept", "Blocks not freed, of those allocated", widest(sites), keptText, (site) => String(site.live_allocations)),
    number("ratio", "% kept", "100 % means that nothing was ever freed", 112, (site) => (isRatioKnown(site) ? percent(site.ratio ?? 0) : "–"), (site) => (isRatioKnown(site) ? String(site.ratio) : "")),
    number("growth", "Growth", "Bytes per second", 110, (site) => (site.growth_bytes_per_second === 0 ? "–" : `${bytes(site.growth_bytes_per_second)}/s`), (site) => String(site.growth_bytes_per_second)),
    number("age_ns", "Oldest", "The age of the oldest live block", 100, (site) => when(site.age_ns), (site) => String(site.age_ns ?? "")),
    number("first_ns", "First", "The first allocation here", 100, (site) => when(site.first_ns), (site) => String(site.first_ns ?? "")),
    number("last_ns", "Last", "The last allocation here", 100, (site) => when(site.last_ns), (site) => String(site.last_ns ?? "")),
    { id: "spark", title: "Live over time", help: "From the start to the end of the session", width: 136, cell: (site) => <Spark values={site.sparkline} /> },
  ];
  const one = sites.find((site) => id(site) === selected);
  return (
    <section class="view" aria-label="Leaks">
      <div class="tools">
        <Choices
          label="Verdict"
          value={verdict}
          choices={(["live", ...Object.keys(VERDICTS)] as ("live" | Verdict)[])
            // Only blocks that were sampled can be unclear.
            .filter((name) => name !== "unclear" || all.some((site) => isShown(site, name)))
            .map((name) => {
            const [text, title] = name === "live" ? ["not freed", "Every place that holds blocks at the end"] : VERDICTS[name];
            const found = all.filter((site) => isShown(site, name)).length;
            return { value: name, text: `${text} ${found}`, title, number: [`verdict ${name}`, found] };
          })}
          onChange={setVerdict}
        />
        <span class="push" />
        <label class="switch" title="Hide leaks that a suppression matches">
          <input type="checkbox" checked={state.suppressions} onChange={(event) => change({ suppressions: event.currentTarget.checked })} />
          <span>suppressions</span>
        </label>
        <button
          type="button"
          class="button"
          disabled={!one}
          title="Copies a line in LeakSanitizer's format, for a file that you pass with --suppressions"
          onClick={async () => {
            if (!one) return;
            const line = suppression(one.function ?? one.module ?? "");
            say((await copy(`${line}\n`)) ? `Copied: ${line}` : line);
          }}
        >
          Suppress this…
        </button>
      </div>
      {mode !== "session" && <p class="reason">These verdicts and numbers are about the whole session. The selected {mode} does not change them.</p>}
      <NotCompared />
      <WholeOnly what="verdicts" isTimeless />
      {answer.error && <Problem text={answer.error} />}
      {one && (
        <p class="reason" role="status">
          <VerdictBadge verdict={one.verdict} /> {one.reason}
        </p>
      )}
      <ListGrid
        label="Leaks"
        name="leaks"
        tall
        columns={columns}
        list={sites}
        version={`${verdict} ${answer.busy} ${sites.length}`}
        idOf={id}
        selected={selected}
        onSelect={(site) => {
          setSelected(id(site));
          pick({
            title: site.function ?? site.module ?? "[unknown]",
            level: { ...site, short: site.short ?? null, offset: null, inlined: false },
            selection: { of: "site", stack: site.stack, suppressed: site.suppressed !== null },
            isWhole: true,
          });
        }}
        onOpen={(site) => change({ view: "callers", fn: site.function ?? "" })}
        empty="Everything was freed."
      />
    </section>
  );
};
