// The page: draws what the state says.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask as request } from "../client";
import { giveColours } from "../colours";
import { type Cost, knows, limitTo, value } from "../costs";
import { type State, VIEWS, type View, isOtherTrace, mode, whole as wholeOf } from "../state";
import { change, current, useAnswer, useAsk, useChange, usePreference } from "../store";
import { time } from "../units";
import type { Overview } from "../work/protocol";
import { Callers } from "./callers";
import { ChartView } from "./charts";
import { type Page, PageContext, type Pick, type Picked, type Status, type TraceStatus, askOf, costOf, isProfile, lookOf, opened, withoutEvents, withoutKept } from "./context";
import { Detail } from "./detail";
import { extras } from "./extras";
import { DiffTable } from "./diff";
import { Figures } from "./figures";
import { FlameView } from "./flame";
import { Header } from "./header";
import { LifetimesView, SizesView } from "./histograms";
import { Leaks } from "./leaks";
import { MemoryView } from "./memory";
import { HelpDialog } from "./menus";
import { Problem, Splitter } from "./parts";
import { SourceView } from "./source";
import { Summary } from "./summary";
import { Allocators } from "./allocators";
import { Processes } from "./processes";
import { Threads } from "./threads";
import { Timeline } from "./timeline";
import { TreeView } from "./trees";

const LISTS: Record<string, Cost[]> = {
  session: ["peak_bytes", "leaked_bytes", "allocations", "temporary"],
  range: ["peak_bytes", "growth_bytes", "allocations", "temporary"],
  moment: ["live_bytes", "live_allocations"],
};

/** The lists of a heap profile of another tool, and the views that it cannot have. */
const PROFILE: Cost[] = ["leaked_bytes", "peak_bytes", "allocated_bytes", "allocations", "temporary"];
const NEED_EVENTS: View[] = ["consumed", "allocations", "temporary", "sizes", "lifetimes", "leaks", "threads", "processes", "allocators", "memory"];

/** The costs by which functions get their colours, and how many functions of each list get one before any view asks for it. */
const RANKED: Cost[] = ["peak_bytes", "allocations", "temporary"];
const COLOURED = 6;

const liveOf = ({ totals, live }: Overview): NonNullable<Page["live"]> => ({ time_ns: totals.to_ns, bytes: value(totals.sums, "live_bytes"), byFunction: live });

export const App = (): JSX.Element => {
  const state = useChange();
  const status = useStatus(state);
  if (status.error) return <Lonely title="heaptrack" text={status.error} />;
  if (!status.value) return <p class="first">heaptrack is loading…</p>;
  const trace = status.value.traces[state.file];
  if (!trace && extras.start) return extras.start();
  if (!trace) return <Lonely title="heaptrack" text={`There is no trace number ${state.file + 1}. Open another address, or start heaptrack analyze with that trace.`} />;
  if (trace.state === "failed") return <Lonely title={trace.name} text={trace.error ?? "This trace cannot be read."} others={status.value} />;
  if (trace.state === "loading" || trace.state === "waiting") return <Loading trace={trace} onCancel={extras.cancel && (() => extras.cancel?.(state.file))} />;
  return <Opened key={`${state.file} ${state.domain}`} status={status.value} trace={trace} refresh={status.refresh} />;
};

/** Milliseconds between two requests for the progress of loading, and for the version of a trace that grows. */
const LOADING_PAUSE = 50;
const LIVE_PAUSE = 1000;

/** Requests the status again and again while the trace loads, and while a recorded program runs. `refresh` requests it once more. */
const useStatus = (state: State): { value: Status | undefined; error: string | undefined; refresh: () => void } => {
  const { file, domain } = state;
  const [turn, setTurn] = useState(0);
  const refresh = (): void => setTurn((old) => old + 1);
  const asked = `${file} ${domain}`;
  useEffect(() => {
    addEventListener("heaptrack-traces", refresh);
    return () => removeEventListener("heaptrack-traces", refresh);
  }, []);
  const answer = useAnswer(async () => ({ asked, status: (await request("raw", { view: "status", trace: file, query: wholeOf(state), version: turn })) as unknown as Status }), [turn, asked]);
  // The status of another file or domain does not apply to this one.
  const value = answer.value?.asked === asked ? answer.value.status : undefined;
  const trace = value?.traces[file];
  useEffect(() => {
    if (answer.busy || answer.error) return undefined;
    const isLoading = (one: typeof trace): boolean => one?.state === "loading" || one?.state === "waiting";
    // The versions of traces that this one is compared with decide what is shown, too.
    const others = isOtherTrace(state.compare) ? [Number(state.compare), ...state.runs].map((index) => value?.traces[index]) : [];
    const pause = isLoading(trace) ? LOADING_PAUSE : [trace, ...others].some((one) => one?.state === "live" || isLoading(one)) ? LIVE_PAUSE : 0;
    if (pause === 0) return undefined;
    const timer = setTimeout(refresh, pause);
    return () => clearTimeout(timer);
  }, [answer, state.compare, state.runs.join()]);
  return { value, error: answer.error, refresh };
};

const Lonely = ({ title, text, others }: { title: string; text: string; others?: Status }): JSX.Element => (
  <main class="lonely">
    <h1>{title}</h1>
    <Problem text={text} />
    {current().domain !== "malloc" && (
      <button type="button" class="button" onClick={() => change({ domain: "malloc" })}>
        Show malloc's blocks
      </button>
    )}
    {extras.chooser?.(() => undefined)}
    {others && opened(others).length > 1 && (
      <ul>
        {opened(others).map(({ index, name }) => (
          <li key={index}>
            <button type="button" class="link" onClick={() => change({ file: index })}>
              {name}
            </button>
          </li>
        ))}
      </ul>
    )}
  </main>
);

const Loading = ({ trace, onCancel }: { trace: TraceStatus; onCancel: (() => void) | undefined }): JSX.Element => (
  <main class="lonely">
    <h1>{trace.name}</h1>
    <p role="status">
      Reading {Math.round(trace.progress * 100)} %{trace.remaining_ns !== null && trace.remaining_ns > 0 && <> · about {time(trace.remaining_ns)} left</>}
    </p>
    <progress max={1} value={trace.progress} aria-label="Reading the trace" />
    {onCancel && (
      <button type="button" class="button" onClick={onCancel}>
        Cancel
      </button>
    )}
  </main>
);

const Opened = ({ status, trace, refresh }: { status: Status; trace: TraceStatus; refresh: () => void }): JSX.Element => {
  const asked = useChange();
  const compared = isOtherTrace(asked.compare) ? [Number(asked.compare), ...asked.runs].map((index) => status.traces[index]) : [];
  const hasEvents = ![trace, ...compared].some(isProfile);
  limitTo([trace, ...compared].map((one) => one?.session?.known ?? null));
  const state = useMemo(() => (hasEvents ? (status.report ? withoutKept(asked) : asked) : withoutEvents(asked)), [asked, status.report, hasEvents]);
  const [lastPicked, setPicked] = useState<Picked | undefined>(undefined);
  const [said, say] = useState("");
  const [help, setHelp] = useState(false);
  const [side, setSide] = usePreference("detail.width", 380);
  const ask = askOf(state, status);
  const shape = mode(state);
  const overview = useAsk("overview", { ask, costs: (hasEvents ? (LISTS[shape] ?? []) : PROFILE).filter(knows), limit: 40 });
  // The share of the user's own code and the colours come from the whole session, so that they do not change with a range.
  const whole = useAsk("overview", { ask: { trace: state.file, query: wholeOf(state), version: trace.version, base: 0 }, costs: RANKED.filter(knows), limit: COLOURED });
  useMemo(() => whole.value && giveColours(RANKED.flatMap((cost) => whole.value?.lists[cost] ?? []).map(({ level }) => level)), [whole.value]);
  const mine = whole.value?.mine ?? 1;
  const runtime = trace.session?.runtime_ns ?? 0;
  const look = lookOf(state, mine);
  // The keys of functions depend on which two traces are compared, if any. A selection that was made with other keys is not shown.
  const between = isOtherTrace(state.compare) ? `${state.compare}` : "";
  const picked = lastPicked?.between === between ? lastPicked : undefined;
  const pick = (next: Pick | undefined): void => setPicked(next && { ...next, look, between });
  const peak = whole.value && { time_ns: whole.value.totals.answer.peak_time_ns ?? 0, bytes: value(whole.value.totals.sums, "peak_bytes") };
  const live = shape === "moment" && !overview.busy && overview.value ? liveOf(overview.value) : undefined;
  const page = useMemo<Page>(
    () => ({ state, status, trace, ask, look, mode: shape, cost: costOf(state), isDiff: state.compare !== undefined, runtime, peak, live, picked, pick, say, refresh }),
    [state, status, trace, picked, look.levels, runtime, whole.value, overview.value, overview.busy],
  );
  useKeys(page, () => setHelp(true));
  useEffect(() => {
    document.title = `${trace.session?.command.join(" ") || trace.name} – heaptrack`;
  }, [trace]);
  useEffect(() => {
    if (!said) return undefined;
    const timer = setTimeout(() => say(""), 6000);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <PageContext.Provider value={page}>
      <div class={`page on-${state.view}`}>
        <Header />
        {trace.notes.map((note) => (
          <p key={note} class="note" role="note">
            {note}
          </p>
        ))}
        <main>
          {overview.error && <Problem text={overview.error} />}
          {overview.value && <Figures overview={overview.value} />}
          {hasEvents && <Timeline />}
          <Tabs
            view={state.view}
            hasProcesses={(page.trace.session?.processes ?? 0) > 0}
            hasAllocators={(page.trace.session?.allocators.length ?? 0) > 1}
            hasEvents={hasEvents}
          />
          <div class="content">
            <div class="body" id="view" role="tabpanel" aria-labelledby={`tab-${state.view}`}>
              {overview.value && page.isDiff && state.view === "summary" && <DiffTable />}
              {!hasEvents && NEED_EVENTS.includes(state.view) && <Problem text="This view needs events, and a heap profile of another tool has only sums." />}
              {overview.value && whole.value && (hasEvents || !NEED_EVENTS.includes(state.view)) && <Body view={state.view} overview={overview.value} />}
            </div>
            {picked && overview.value && (
              <>
                <Splitter label="Width of the details" vertical onMove={(delta) => setSide(Math.max(260, Math.min(innerWidth - 300, side - delta)))} />
                <div class="side" style={{ width: `${side}px` }}>
                  <Detail />
                </div>
              </>
            )}
          </div>
        </main>
        <div class={said ? "said" : "said silent"} role="status" aria-live="polite">
          {said}
        </div>
        {overview.busy && <div class="busy" aria-hidden="true" />}
        {help && <HelpDialog onClose={() => setHelp(false)} />}
      </div>
    </PageContext.Provider>
  );
};

/** The tabs of processes and allocators are there only if the trace has several. Without events, there are no tabs about time and single blocks. */
const Tabs = ({ view, hasProcesses, hasAllocators, hasEvents }: { view: View; hasProcesses: boolean; hasAllocators: boolean; hasEvents: boolean }): JSX.Element => {
  const isThere = (name: View): boolean => (name === "processes" ? hasProcesses : name === "allocators" ? hasAllocators : hasEvents || !NEED_EVENTS.includes(name));
  const tabs = VIEWS.filter(([name]) => isThere(name) || view === name);
  // On a narrow screen not all tabs fit, and the selected one may be outside.
  useEffect(() => {
    const tab = document.getElementById(`tab-${view}`);
    const list = tab?.parentElement;
    if (!tab || !list) return;
    const [inner, outer] = [tab.getBoundingClientRect(), list.getBoundingClientRect()];
    list.scrollLeft += Math.max(0, inner.right - outer.right) - Math.max(0, outer.left - inner.left);
  }, [view]);
  return (
  <div
    class="tabs"
    role="tablist"
    aria-label="Views"
    onKeyDown={(event) => {
      const at = tabs.findIndex(([name]) => name === view);
      const to = event.key === "ArrowRight" ? at + 1 : event.key === "ArrowLeft" ? at - 1 : undefined;
      if (to === undefined) return;
      const next = tabs[(to + tabs.length) % tabs.length]?.[0];
      if (next) change({ view: next });
      requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
      event.preventDefault();
    }}
  >
    {tabs.map(([name, text]) => (
      <button key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={name === view} aria-controls="view" tabIndex={name === view ? 0 : -1} class={name === view ? "tab on" : "tab"} onClick={() => change({ view: name })}>
        {text}
      </button>
    ))}
  </div>
);
};

const Body = ({ view, overview }: { view: View; overview: Overview }): JSX.Element => {
  switch (view) {
    case "summary":
      return <Summary overview={overview} />;
    case "bottom-up":
    case "top-down":
      return <TreeView key={view} direction={view} />;
    case "callers":
      return <Callers />;
    case "flame":
      return <FlameView />;
    case "consumed":
      return <ChartView what="live_bytes" />;
    case "allocations":
      return <ChartView what="allocations" />;
    case "temporary":
      return <ChartView what="temporary" />;
    case "sizes":
      return <SizesView />;
    case "lifetimes":
      return <LifetimesView />;
    case "leaks":
      return <Leaks />;
    case "memory":
      return <MemoryView />;
    case "threads":
      return <Threads />;
    case "allocators":
      return <Allocators />;
    case "processes":
      return <Processes />;
    case "source":
      return <SourceView />;
  }
};

const useKeys = (page: Page, onHelp: () => void): void => {
  useEffect(() => {
    const keys = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      const isTyping = target.matches("input, select, textarea");
      if (event.key === "Escape" && !isTyping) {
        if (page.picked) page.pick(undefined);
        else if (current().zoom) change({ zoom: "" });
        return;
      }
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const number = Number(event.key);
      if (number >= 1 && number <= 9) change({ view: VIEWS[number - 1]?.[0] ?? "summary" });
      else if (event.key === "/") document.querySelector<HTMLElement>('[data-key="/"]')?.focus();
      else if (event.key === "?") onHelp();
      else if (event.key === "m") change({ levels: page.look.levels === "mine" ? "all" : "mine" });
      else if (event.key === "t") document.querySelector<HTMLElement>(".timeline .plot")?.focus();
      else if (event.key === "p") document.querySelector<HTMLElement>(".timeline .peak")?.click();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [page]);
};
