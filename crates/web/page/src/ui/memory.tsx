// The view Memory: RSS over time by kind of part, and below it the table of parts of one instant.
//
// Must hold: every number is the engine's, also sums. The instant that is shown follows from the state: the last one up to the selected moment, else the highest
// one of the range or of the session (`shownInstant`). Selecting an instant selects its time as the moment of the whole page.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { PEAK, type State, filtered } from "../state";
import { change } from "../store";
import { bytes, full, percent, several, time } from "../units";
import { type Drawing, BOTTOM, TOP, draw, indexAt, timeOf, xOf } from "./area";
import { usePage } from "./context";
import { type Column, ListGrid } from "./grid";
import { AddressSpace } from "./map";
import { kindOf } from "./memory_kinds";
import { Label, Num } from "./number";
import { Empty, NotCompared, Problem, SaveButtons, download, ink, useSize } from "./parts";
import { CanvasPen, SvgPen, sharpen } from "./pen";
import { useRaw } from "./raw";
import { formatTime } from "./series";
import { Marker } from "./timeline";

type Part = { kind: string; name: string; rss_bytes: number; pss_bytes: number };
type Instant = {
  time_ns: number;
  rss_bytes: number;
  pss_bytes: number;
  parts_rss_bytes: number;
  parts_pss_bytes: number;
  swap_bytes: number;
  page_table_bytes: number;
  cgroup_cache_bytes: number | null;
  cgroup_limit_bytes: number | null;
  /** These three are null if blocks were sampled. */
  live_blocks: number | null;
  requested_bytes: number | null;
  usable_bytes: number | null;
  parts: Part[];
  fragmentation: Fragmentation;
};
type Site = { function: string | null; short: string | null; module: string | null; blocks: number; bytes: number; pinned_bytes: number; gives_back_bytes: number; together_gives_back_bytes: number };
type Fragmentation = { trim_bytes: number; purge_bytes: number; sparse_bytes: number; sparse_live_bytes: number; sites: Site[]; sizes: { up_to_bytes: number; resident_bytes: number; live_bytes: number }[] };
type Hint = { kind: string; text: string; gain: string; gain_bytes: number };
type Memory = {
  range: { from_ns: number; to_ns: number };
  note: string | null;
  reason: string | null;
  highest: number | null;
  instants: Instant[];
  kinds: { kind: string; rss_bytes: number[]; pss_bytes: number[] }[];
  /** About the instant at this time. */
  hints: Hint[];
  hints_time_ns: number | null;
};

const HEIGHT = innerHeight > 1150 ? 320 : innerHeight > 800 ? 250 : 200;

/** The index of the instant that the state asks for. Undefined if the parts were not measured in that time. */
const shownInstant = ({ instants, highest }: Memory, { at, from, to }: State, peakTime: number): number | undefined => {
  if (at !== undefined) {
    const until = at === PEAK ? peakTime : at;
    const last = instants.findLastIndex((instant) => instant.time_ns <= until);
    return last < 0 ? undefined : last;
  }
  if (from === undefined && to === undefined) return highest ?? undefined;
  const inRange = instants.flatMap(({ time_ns, rss_bytes }, index) => (time_ns >= (from ?? 0) && time_ns <= (to ?? Number.POSITIVE_INFINITY) ? [{ index, rss_bytes }] : []));
  return inRange.reduce<(typeof inRange)[number] | undefined>((best, one) => (best === undefined || one.rss_bytes > best.rss_bytes ? one : best), undefined)?.index;
};

/** All instants of the session, without their single parts. */
const useInstants = (isWanted: boolean): { value: Memory | undefined; error: string | undefined } => {
  const answer = useRaw(isWanted ? "memory" : undefined, "limit=1");
  return { value: answer.value as unknown as Memory | undefined, error: answer.error };
};

/** As a click in the timeline. A comparison of two moments ends when another moment is selected. */
const select = (instant: Instant, { compare }: State): void => change({ at: instant.time_ns, from: undefined, to: undefined, compare: compare?.startsWith("@") ? undefined : compare });

/** Opens the tree of the blocks that were live at an instant, or of the mappings that existed then. Of several processes, the parts are those of the first one, so are the blocks. A report cannot select a process. */
const useTree = (): ((instant: Instant, domain?: State["domain"]) => void) => {
  const { trace, status } = usePage();
  const process = (trace.session?.processes ?? 0) > 0 && !status.report ? { process: ["#0"] } : {};
  return (instant, domain = "malloc") => change({ view: "bottom-up", domain, at: instant.time_ns, from: undefined, to: undefined, compare: undefined, ...process });
};

export const MemoryView = (): JSX.Element => {
  const { state, peak, trace } = usePage();
  const { value: all, error } = useInstants(true);
  const index = all && shownInstant(all, state, peak?.time_ns ?? 0);
  const instant = index === undefined ? undefined : all?.instants[index];
  return (
    <section class="view memory" aria-label="Memory">
      <NotCompared />
      {filtered(state) && (
        <p class="reason" role="note">
          Filters select blocks. They do not change this view, which is about all memory of the process.
        </p>
      )}
      {error && <Problem text={error} />}
      {all && all.instants.length === 0 && <Empty>{whyEmpty(all, trace.session?.processes ?? 0)}</Empty>}
      {all && all.instants.length > 0 && (
        <>
          {all.note !== null && (
            <p class="reason" role="note">
              {sentence(all.note)}
            </p>
          )}
          <Areas all={all} index={index} />
          {instant ? <Parts wanted={instant.time_ns} /> : <Empty>The parts of the memory were not measured {state.at === undefined ? "in this range. Choose a longer one" : `before ${time(all.instants[0]?.time_ns ?? 0)}. Choose a later moment`}, or click in the chart.</Empty>}
          <AddressSpace />
        </>
      )}
    </section>
  );
};

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

/** Why there are no parts, and what to do to see them. */
const whyEmpty = ({ reason }: Memory, processes: number): JSX.Element => {
  if (reason !== null) return <>{sentence(reason)} Record the program as a user who may read it.</>;
  if (processes > 0) return <>This trace of several processes has no parts of the resident memory; a merged trace never has them, so open the traces that it was made of.</>;
  return (
    <>
      This trace has no parts of the resident memory; to see them, record a run of more than 50 ms with this version of heaptrack, and not with <code>--memory-every off</code>.
    </>
  );
};

const Areas = ({ all, index }: { all: Memory; index: number | undefined }): JSX.Element => {
  const { state, runtime, say } = usePage();
  const openTree = useTree();
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const [hover, setHover] = useState<number | undefined>(undefined);
  const { instants, kinds, highest } = all;
  const times = instants.map(({ time_ns }) => time_ns);
  const end = Math.max(runtime, all.range.to_ns, times[times.length - 1] ?? 0, 1);
  const drawing: Drawing = {
    width,
    height: HEIGHT,
    // A value holds until the next instant, as the engine answers for a moment between two instants.
    times: [...times, end],
    stepped: true,
    from: state.zoomFrom ?? 0,
    to: state.zoomTo ?? end,
    bands: kinds.map(({ kind, rss_bytes }) => ({ name: kindOf(kind)[0], colour: kindOf(kind)[1], values: rss_bytes })),
    hasEdges: true,
    total: instants.map(({ rss_bytes }) => rss_bytes),
    lines: knowsBlocks(all) ? [{ name: LINE, colour: ink().text, dash: [6, 3], values: instants.map(({ requested_bytes }) => requested_bytes ?? 0) }] : [],
    log: false,
    format: bytes,
    formatTime,
    ink: ink(),
  };
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return;
    const context = sharpen(node, width, HEIGHT);
    if (context) draw(new CanvasPen(context), drawing);
  });
  const save = (form: "svg" | "png"): void => {
    if (form === "png") canvas.current?.toBlob((blob) => blob && download("memory.png", blob));
    else {
      const pen = new SvgPen(width, HEIGHT, "Resident memory by kind");
      draw(pen, drawing);
      download("memory.svg", pen.finish(drawing.ink.paper), "image/svg+xml");
    }
  };
  const at = (event: { clientX: number }): number => indexAt(drawing.times, timeOf(drawing, event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0)));
  const choose = (next: number): void => {
    const instant = instants[next];
    if (!instant) return;
    setHover(undefined);
    select(instant, state);
    const wanted = knowsBlocks(all) ? "blocks" : "heap";
    const held = kinds.find(({ kind }) => kind === wanted)?.rss_bytes[next] ?? 0;
    say(`${time(instant.time_ns)}: RSS ${bytes(instant.rss_bytes)}, of which ${bytes(held)} are ${wanted === "blocks" ? "live blocks" : "the allocator's"}`);
  };
  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = index ?? 0;
    const moves: Record<string, number> = { ArrowRight: now + 1, ArrowLeft: now - 1, PageDown: now + 10, PageUp: now - 10, Home: 0, End: instants.length - 1, h: highest ?? 0 };
    const to = moves[event.key];
    const instant = index === undefined ? undefined : instants[index];
    if (to !== undefined) choose(Math.max(0, Math.min(instants.length - 1, to)));
    else if (event.key === "Enter" && instant) openTree(instant);
    else if (event.key === "Escape") change({ at: undefined, from: undefined, to: undefined });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const top = highest === null ? undefined : instants[highest];
  const topX = top ? xOf(drawing, top.time_ns) : 0;
  const isInSight = top !== undefined && top.time_ns >= drawing.from && top.time_ns <= drawing.to;
  const read = hover ?? index;
  const chosen = index === undefined ? undefined : instants[index];
  return (
    <div class="card">
      <header class="card-head">
        <h2>Resident memory by kind</h2>
        <span class="hint">click = the parts at that instant · arrow keys = next and previous</span>
        <span class="push" />
        <SaveButtons onSave={save} />
      </header>
      <div
        ref={place}
        class="plot"
        tabIndex={0}
        role="group"
        aria-roledescription="chart"
        aria-label={`Resident memory, ${several(instants.length, "instant")}: arrow keys select the next and the previous one, Home and End the first and the last, H the highest, Enter shows the callers of its live blocks, Escape clears`}
        onKeyDown={keys}
        onPointerMove={(event) => setHover(at(event))}
        onPointerLeave={() => setHover(undefined)}
        onPointerUp={(event) => event.button === 0 && choose(at(event))}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${HEIGHT}px` }} role="img" aria-label={`RSS over time by kind of memory${top ? `, at most ${bytes(top.rss_bytes)} at ${time(top.time_ns)}` : ""}. The table below has the parts of one instant`} />
        {chosen && state.at !== undefined && <Marker drawing={drawing} time={chosen.time_ns} text={`measured at ${time(chosen.time_ns)}`} kind="moment" />}
        {top && isInSight && (
          <button
            type="button"
            class={topX > width - 260 ? "peak left" : "peak"}
            style={{ left: `${topX}px`, height: `${HEIGHT - BOTTOM - 2}px` }}
            title="Show the parts at the highest RSS"
            onPointerUp={(event) => event.stopPropagation()}
            onClick={() => choose(highest ?? 0)}
          >
            <span data-number="memory highest" data-value={top.rss_bytes} data-time={top.time_ns}>
              highest {bytes(top.rss_bytes)} at {time(top.time_ns)}
            </span>
          </button>
        )}
        {hover !== undefined && <div class="cursor" style={{ left: `${Math.max(xOf(drawing, drawing.from), xOf(drawing, instants[hover]?.time_ns ?? 0))}px`, top: `${TOP}px`, height: `${HEIGHT - TOP - BOTTOM}px` }} />}
      </div>
      <Legend all={all} index={read} />
    </div>
  );
};

const LINE = "requested by live blocks";
/** False if blocks were sampled. */
const knowsBlocks = ({ instants }: Memory): boolean => instants.every(({ requested_bytes }) => requested_bytes !== null);

/** The kinds in the order of the areas, from the top, with their values at one instant. */
const Legend = ({ all, index }: { all: Memory; index: number | undefined }): JSX.Element => {
  const instant = index === undefined ? undefined : all.instants[index];
  const value = (name: string, amount: number | undefined): JSX.Element | null =>
    instant && amount !== undefined ? (
      <b data-number={`instant ${name}`} data-value={amount} data-time={instant.time_ns}>
        {bytes(amount)}
      </b>
    ) : null;
  return (
    <div class="legend" aria-label="Kinds of memory by colour">
      {[...all.kinds].reverse().map(({ kind, rss_bytes }) => (
        <span key={kind} class="legend-entry" title={kindOf(kind)[2]} data-kind={kind}>
          <i style={{ background: kindOf(kind)[1] }} />
          <span class="legend-name">{kindOf(kind)[0]}</span>
          {value(kind, index === undefined ? undefined : rss_bytes[index])}
        </span>
      ))}
      {knowsBlocks(all) && (
        <span class="legend-entry" title="Requested bytes of all live blocks, resident or not. It is above the area of live blocks if the program has not touched all of them">
          <svg class="stroke" width="27" height="4" aria-hidden="true">
            <line x1="0" y1="2" x2="27" y2="2" stroke={ink().text} stroke-width="2.5" stroke-dasharray="6 3" />
          </svg>
          <span class="legend-name">{LINE}</span>
          {value("requested_bytes", instant?.requested_bytes ?? undefined)}
        </span>
      )}
      {instant && (
        <span class="legend-entry read">
          <span data-number="instant time_ns" data-value={instant.time_ns} data-time={instant.time_ns}>
            {time(instant.time_ns)}
          </span>{" "}
          · RSS {value("rss_bytes", instant.rss_bytes)}
        </span>
      )}
    </div>
  );
};

type Order = State["order"];
const isText = (order: Order): order is "kind" | "name" => order === "kind" || order === "name";
const sorted = (parts: Part[], order: Order, isReversed: boolean): Part[] => {
  const names = (a: Part, b: Part): number => kindOf(a.kind)[0].localeCompare(kindOf(b.kind)[0]) || a.name.localeCompare(b.name);
  const list = parts.slice().sort((a, b) => (order === "name" ? a.name.localeCompare(b.name) : order === "kind" ? 0 : b[order] - a[order]) || names(a, b));
  return isReversed ? list.reverse() : list;
};

/** The parts of the instant at this time. While they are requested, those of the earlier one stay, under its own time. */
const Parts = ({ wanted }: { wanted: number }): JSX.Element => {
  const { state, trace } = usePage();
  const openTree = useTree();
  const answer = useRaw("memory", `at=${wanted}`);
  const memory = answer.value as unknown as Memory | undefined;
  const instant = memory?.instants[0];
  if (answer.error) return <Problem text={answer.error} />;
  if (!instant) return <div class="parts" />;
  const list = sorted(instant.parts, state.order, state.reversed);
  /** The domain that has the callers of a part. A report does not have the mappings. */
  const domainOf = (part: Part): State["domain"] | undefined => (part.kind === "blocks" ? "malloc" : part.kind === "mapped" && trace.mapped ? "mapped" : undefined);
  const number = (id: "rss_bytes" | "pss_bytes", title: string, help: string): Column<Part> => ({
    id,
    title,
    help,
    width: 120,
    numeric: true,
    cell: (part) => <span title={full(part[id], "bytes")}>{bytes(part[id])}</span>,
    text: (part) => String(part[id]),
  });
  const share = (part: Part): number => (instant.rss_bytes > 0 ? part.rss_bytes / instant.rss_bytes : 0);
  const columns: Column<Part>[] = [
    {
      id: "kind",
      title: "Kind",
      help: "What the memory is used for",
      // Wide enough for the longest kind and the link to its callers.
      width: 260,
      cell: (part) => (
        <span title={kindOf(part.kind)[2]}>
          <i class="swatch" style={{ background: kindOf(part.kind)[1] }} />
          {kindOf(part.kind)[0]}
          {domainOf(part) && (
            <button type="button" class="link callers" tabIndex={-1} title={part.kind === "blocks" ? "Show the callers of the blocks that were live at this instant" : "Show the callers of the mappings that existed at this instant"} onClick={() => openTree(instant, domainOf(part))}>
              callers
            </button>
          )}
        </span>
      ),
      text: (part) => part.kind,
    },
    { id: "name", title: "Name", help: "Which memory of this kind: an arena, a file, a mapping", width: 220, isWide: true, cell: (part) => <span title={part.name}>{part.name}</span>, text: (part) => part.name },
    { ...number("rss_bytes", "RSS", "Resident bytes"), bar: share },
    number("pss_bytes", "PSS", "Resident bytes; a page that several processes share counts in parts"),
    { id: "share", title: "% of RSS", help: "The part's share of the resident memory of the process", width: 100, numeric: true, sortable: false, cell: (part) => <span class="share-of-all">{percent(share(part))}</span> },
  ];
  return (
    <div class="parts">
      <div class="tools">
        <h2>
          Parts at{" "}
          <Num of="memory time_ns" value={instant.time_ns}>
            {time(instant.time_ns)}
          </Num>
        </h2>
        <span class="hint">{state.at === undefined ? (state.from === undefined && state.to === undefined ? "the highest RSS that was measured" : "the highest RSS that was measured in the range") : ""}</span>
        <span class="push" />
        <button type="button" class="button" title="Show the blocks that were live at this instant, by the functions that allocated them" onClick={() => openTree(instant)}>
          Callers of live blocks
        </button>
      </div>
      <div class="parts-table" style={{ maxHeight: `${list.length * 26 + 34}px` }}>
        <ListGrid
          label="Parts of the memory"
          name="memory"
          columns={columns}
          list={list}
          version={`${instant.time_ns} ${state.order} ${state.reversed}`}
          idOf={(part) => `${part.kind} ${part.name}`}
          onOpen={(part) => domainOf(part) && openTree(instant, domainOf(part))}
          sort={{ id: state.order, ascending: isText(state.order) !== state.reversed }}
          onSort={(id) => change(id === state.order ? { reversed: !state.reversed } : { order: id as Order, reversed: false })}
        />
      </div>
      <Sums instant={instant} />
      {memory.hints_time_ns === instant.time_ns && <Hints hints={memory.hints} />}
      <Fragments instant={instant} />
    </div>
  );
};

/** Less memory in mostly free pages is not mentioned: so many bytes, and this part of RSS. */
const NOTABLE_BYTES = 1 << 20;
const NOTABLE_PART = 20;

/** Which pages are mostly free, which blocks keep them resident, and how full pages are by the size of blocks. */
const Fragments = ({ instant: { fragmentation, rss_bytes } }: { instant: Instant }): JSX.Element | null => {
  const { trim_bytes, purge_bytes, sparse_bytes, sparse_live_bytes, sites, sizes } = fragmentation;
  const notable = Math.max(NOTABLE_BYTES, rss_bytes / NOTABLE_PART);
  if (sparse_bytes + trim_bytes + purge_bytes < notable) return null;
  const returning = purge_bytes > trim_bytes ? "a purge" : "malloc_trim(0)";
  const pinning = sites.filter(({ pinned_bytes }) => pinned_bytes >= notable / 4);
  const last = sites.at(-1);
  return (
    <details class="card fragments" open>
      <summary>
        <Label>
          {bytes(sparse_bytes)} are in mostly free pages, which hold {bytes(sparse_live_bytes)} of live blocks; pages without a block that {returning} would return: {bytes(trim_bytes + purge_bytes)}
        </Label>
      </summary>
      <ul>
        {pinning.map((site, index) => (
          <li key={index} data-site={index}>
            <Label>
              {several(site.blocks, "block")} ({bytes(site.bytes)}) of <b>{site.short ?? site.function ?? site.module ?? "an unknown function"}</b> alone keep {bytes(site.pinned_bytes)} resident. Freeing them and {returning} would return {bytes(site.gives_back_bytes)}
            </Label>
          </li>
        ))}
        {last && sites.length > 1 && (
          <li>
            <Label>
              Freeing the blocks of all {sites.length} listed places and {returning} would return {bytes(last.together_gives_back_bytes)}
            </Label>
          </li>
        )}
        <li>
          <Label>
            Live share of the pages by size of the largest block:{" "}
            {sizes
              .filter(({ resident_bytes }) => resident_bytes >= notable / 20)
              .map((size) => `up to ${bytes(size.up_to_bytes)}: ${percent(size.live_bytes / size.resident_bytes)} of ${bytes(size.resident_bytes)}`)
              .join(" · ")}
          </Label>
        </li>
      </ul>
    </details>
  );
};

/** What to do about the memory, with the gain that the numbers promise. */
const Hints = ({ hints }: { hints: Hint[] }): JSX.Element => (
  <>
    {hints.map(({ kind, text }) => (
      <p key={kind} class="reason" role="note" data-hint={kind}>
        <Label>{text}</Label>
      </p>
    ))}
  </>
);

/** The sums of the parts, the process's own numbers, and what is not a part. */
const Sums = ({ instant }: { instant: Instant }): JSX.Element => {
  const one = (name: keyof Omit<Instant, "parts" | "fragmentation">, format: (amount: number) => string = bytes): JSX.Element => (
    <Num of={`memory ${name}`} value={instant[name] ?? 0}>
      {format(instant[name] ?? 0)}
    </Num>
  );
  const all = (amount: number): string => full(amount, "bytes");
  return (
    <>
      <table class="plain-table sums" aria-label="Sums of the parts">
        <thead>
          <tr>
            <td />
            <th class="number">RSS</th>
            <th class="number">PSS</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">
              Sum of{" "}
              <Num of="memory parts" value={instant.parts.length}>
                {several(instant.parts.length, "part")}
              </Num>
            </th>
            <td class="number">{one("parts_rss_bytes", all)}</td>
            <td class="number">{one("parts_pss_bytes", all)}</td>
          </tr>
          <tr>
            <th scope="row">The process</th>
            <td class="number">{one("rss_bytes", all)}</td>
            <td class="number">{one("pss_bytes", all)}</td>
          </tr>
        </tbody>
      </table>
      <p class="status-line">
        {one("live_blocks", (amount) => several(amount, "live block"))}, resident or not: {one("requested_bytes")} requested, {one("usable_bytes")} with what the allocator adds
      </p>
      <p class="status-line">
        Beside the sum: swap {one("swap_bytes")}, page tables {one("page_table_bytes")}
        {instant.cgroup_cache_bytes !== null && <>, page cache of the cgroup {one("cgroup_cache_bytes")}</>}
        {instant.cgroup_limit_bytes !== null && <>, limit of the cgroup {one("cgroup_limit_bytes")}</>}
      </p>
    </>
  );
};

/** One line of the Summary: how much of the highest RSS were live blocks. */
export const MemoryLine = (): JSX.Element | null => {
  const { mode, isDiff, trace } = usePage();
  const { value: all } = useInstants(mode === "session" && !isDiff);
  const top = all && all.highest !== null ? all.instants[all.highest] : undefined;
  if (!all || !top) return null;
  const held = all.kinds.find(({ kind }) => kind === "blocks")?.rss_bytes[all.highest ?? 0] ?? 0;
  const share = top.rss_bytes > 0 ? held / top.rss_bytes : 0;
  return (
    <p class="card memory-line">
      Highest RSS{(trace.session?.processes ?? 0) > 0 && " of the first process"} of which the parts were measured:{" "}
      <Num of="memory highest" value={top.rss_bytes}>
        {bytes(top.rss_bytes)}
      </Num>{" "}
      at{" "}
      <Num of="highest time_ns" value={top.time_ns}>
        {time(top.time_ns)}
      </Num>
      , of which{" "}
      <Num of="highest blocks" value={held}>
        {bytes(held)}
      </Num>{" "}
      (
      <Num of="highest share" value={share}>
        {percent(share)}
      </Num>
      ) were live blocks.{" "}
      <button type="button" class="link" onClick={() => change({ view: "memory" })}>
        All parts of the memory
      </button>
    </p>
  );
};
