// The line at the top: the program, the filters and selections in force, each with a button that removes it, and the menus.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type State, filtered, isOtherTrace, momentText } from "../state";
import { change, recall, remember } from "../store";
import { bytes, count, time } from "../units";
import { CompareMenu, NORMALS } from "./compare";
import { type TraceStatus, traceName, usePage } from "./context";
import { ExportMenu, FilterMenu, HelpDialog, OpenMenu } from "./menus";
import { Label, Num } from "./number";
import { Chip, Choices } from "./parts";

export const Header = (): JSX.Element => {
  const { trace, status } = usePage();
  const [help, setHelp] = useState(false);
  const { session } = trace;
  return (
    <header class="top">
      <h1>heaptrack</h1>
      <code class="command" title={session?.command.join(" ") ?? trace.path}>
        {session ? session.command.join(" ") : trace.name}
      </code>
      {session && (
        <span class="facts">
          {session.sampling && (
            <b class="badge warn" title={`Blocks were sampled, on average once in ${bytes(session.sampling.rate_bytes)}: all numbers of blocks and bytes are estimates`}>
              sampled: estimates
            </b>
          )}
          {session.attached && <b class="badge">attached</b>}
          {trace.state === "live" && <b class="badge live">live</b>}
          {session.pid !== null && <Label>pid {session.pid} · </Label>}
          {session.known !== null ? (
            <Label>{session.tool}: sums by stack, without times and single blocks</Label>
          ) : (
            <Recorded session={session} />
          )}
          {!session.complete && trace.state !== "live" && <b class="badge warn">not finished</b>}
        </span>
      )}
      {(trace.custom || trace.mapped) && <Domains trace={trace} />}
      <span class="push" />
      <Chips />
      <FilterMenu />
      <CompareMenu />
      {!status.report && <OpenMenu />}
      <ExportMenu />
      <Theme />
      <button type="button" class="button round" aria-label="Help" title="Help (?)" onClick={() => setHelp(true)}>
        ?
      </button>
      {help && <HelpDialog onClose={() => setHelp(false)} />}
    </header>
  );
};

/** How long the recording was, how many events it has, and how many are missing. */
const Recorded = ({ session }: { session: NonNullable<TraceStatus["session"]> }): JSX.Element => (
  <>
    <Num of="runtime_ns" value={session.runtime_ns}>
      {time(session.runtime_ns)}
    </Num>{" "}
    ·{" "}
    <Num of="events" value={session.events}>
      {count(session.events)} events
    </Num>{" "}
    ·{" "}
    <span class={session.lost_events > 0 ? "lost" : ""} title={session.lost_events > 0 ? "Events that were counted but not recorded" : "No event was lost"}>
      <Num of="lost_events" value={session.lost_events}>
        {count(session.lost_events)} lost
      </Num>
    </span>
  </>
);

const DOMAINS: { value: State["domain"]; text: string; title: string }[] = [
  { value: "malloc", text: "malloc", title: "Blocks of malloc, calloc, realloc and similar functions" },
  { value: "custom", text: "custom allocators", title: "Blocks that the program's own allocators reported (heaptrack_api.h)" },
  { value: "mapped", text: "mappings", title: "Mappings that the program made itself (mmap and its relatives). They are address space, not all of it resident" },
];

/** The memory of a pool comes from malloc or from a mapping, so the blocks of the domains are never added up. */
const Domains = ({ trace }: { trace: TraceStatus }): JSX.Element => {
  const { state } = usePage();
  const has = { malloc: true, custom: trace.custom, mapped: trace.mapped };
  return (
    <Choices
      label="Whose blocks"
      value={state.domain}
      choices={DOMAINS.filter(({ value }) => has[value])}
      onChange={(domain) => change({ domain, at: undefined, from: undefined, to: undefined, zoom: "", fn: undefined })}
    />
  );
};

const Chips = (): JSX.Element => {
  const { state, look, status } = usePage();
  const without = (list: string[], index: number): string[] => list.filter((_, at) => at !== index);
  const parts: JSX.Element[] = [];
  const chip = (text: string, title: string, onRemove: () => void): void => {
    parts.push(<Chip key={text} text={text} title={title} onRemove={onRemove} />);
  };
  if (state.at !== undefined) chip(`live at ${momentText(state.at, time)}`, "Only what was live at this moment", () => change({ at: undefined, compare: state.compare?.startsWith("@") ? undefined : state.compare }));
  else if (state.from !== undefined || state.to !== undefined)
    chip(`range ${time(state.from ?? 0)} – ${state.to === undefined ? "end" : time(state.to)}`, "Only this range of time", () => change({ from: undefined, to: undefined }));
  if (look.levels === "mine") chip("my code", "Shows only frames in your own code. The costs of functions that they call are added to them", () => change({ levels: "all" }));
  state.include.forEach((text, index) => chip(text, "Only stacks in which a frame matches", () => change({ include: without(state.include, index) })));
  state.exclude.forEach((text, index) => chip(`excluding ${text}`, "Without stacks in which a frame matches", () => change({ exclude: without(state.exclude, index) })));
  for (const thread of state.thread) chip(`thread ${thread}`, "Only blocks that this thread allocated", () => change({ thread: state.thread.filter((other) => other !== thread) }));
  for (const allocator of state.allocator) chip(`allocator ${allocator}`, "Only blocks of this allocator", () => change({ allocator: state.allocator.filter((other) => other !== allocator) }));
  state.wrapper.forEach((name, index) => chip(`${name} as allocator`, "This function, and all that it calls, counts as the allocator", () => change({ wrapper: without(state.wrapper, index) })));
  state["not-wrapper"].forEach((name, index) => chip(`${name} is no wrapper`, "This function does not count as the allocator", () => change({ "not-wrapper": without(state["not-wrapper"], index) })));
  for (const process of state.process) chip(`process ${process}`, "Only blocks that this process allocated", () => change({ process: state.process.filter((other) => other !== process) }));
  if (state.size !== undefined) chip(`size ${sizeText(state.size)}`, "Only blocks of this size", () => change({ size: undefined }));
  if (state.lifetime !== undefined) chip(`lived ${lifetimeText(state.lifetime)}`, "Only blocks with this lifetime", () => change({ lifetime: undefined }));
  if (state.compare !== undefined) {
    const text = state.compare === "@peak" ? "the peak" : state.compare.startsWith("@") ? time(Number(state.compare.slice(1))) : traceName(status, Number(state.compare));
    const how = isOtherTrace(state.compare) && state.normalise !== "no" ? `, ${NORMALS[state.normalise].text}` : "";
    chip(`compared to ${text}${how}`, how ? "All numbers are differences; the base is scaled to this trace" : "All numbers are differences", () => change({ compare: undefined, runs: [] }));
  }
  return (
    <>
      {parts}
      {look.levels === "all" && (
        <button type="button" class="button ghost" title="Show only frames in your own code" onClick={() => change({ levels: "mine" })}>
          my code
        </button>
      )}
      {(filtered(state) || state.at !== undefined || state.from !== undefined || state.to !== undefined) && (
        <button type="button" class="button ghost" onClick={() => change({ at: undefined, from: undefined, to: undefined, include: [], exclude: [], thread: [], process: [], allocator: [], size: undefined, lifetime: undefined, compare: undefined, runs: [] })}>
          clear all
        </button>
      )}
    </>
  );
};

/** A range as it was typed or chosen: "32..63" is "32–63", with either end perhaps missing. */
const rangeText = (range: string, below: "<" | "≤", show: (end: string) => string): string => {
  const [min = "", max = min] = range.split("..");
  if (min === max) return show(min);
  if (max === "") return `≥ ${show(min)}`;
  return min === "" || min === "0" ? `${below} ${show(max)}` : `${show(min)}–${show(max)}`;
};

const lifetimeText = (range: string): string => rangeText(range, "<", (end) => (Number.isFinite(Number(end)) ? time(Number(end)) : end));

const sizeText = (range: string): string => {
  const text = rangeText(range, "≤", (end) => end);
  return /\d$/.test(text) ? `${text} B` : text;
};

const Theme = (): JSX.Element => {
  const [theme, set] = useState<string>(() => recall("theme", "auto"));
  const next: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };
  return (
    <button
      type="button"
      class="button round"
      title={`Colours: ${theme}`}
      aria-label={`Colours: ${theme}. Change`}
      onClick={() => {
        const to = next[theme] ?? "auto";
        set(to);
        remember("theme", to);
        applyTheme(to);
      }}
    >
      {theme === "dark" ? "☾" : theme === "light" ? "☀" : "◐"}
    </button>
  );
};

export const applyTheme = (theme: string): void => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("resize"));
};
