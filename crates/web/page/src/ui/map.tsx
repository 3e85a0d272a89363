// The map of the address space: a strip of cells in the order of their addresses, coloured by owner, by fill or by age.
//
// Must hold: every number is the engine's. Stretches without a resident page are gaps of at most a small width, because an address space is nearly empty.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { PEAK, type State } from "../state";
import { hash } from "../colours";
import { change } from "../store";
import { bytes, percent, several, time } from "../units";
import { usePage } from "./context";
import { kindOf } from "./memory_kinds";
import { Label, Num } from "./number";
import { Choices, Problem, SaveButtons, download, ink, useSize } from "./parts";
import { CanvasPen, type Pen, SvgPen, sharpen } from "./pen";
import { useRaw } from "./raw";

type Cell = { start: number; bytes: number; resident_bytes: number; live_bytes: number; owner: number; age_ns: number | null };
type Owner = { kind: string; name: string; function: string | null };
type AddressMap = { time_ns: number | null; rss_bytes: number; note: string | null; owners: Owner[]; cells: Cell[] };

const HEIGHT = 96;
const LABELS = 18;
/** The widest gap, as a part of all cells together. */
const GAP = 1 / 300;
/** The smallest part of the map that can be shown. */
const CLOSEST = 8 * 4096;

/** Where the cells lie in the strip, in bytes from its left end, with all gaps narrowed. */
const places = (cells: Cell[]): { starts: number[]; end: number } => {
  const gap = cells.reduce((sum, cell) => sum + cell.bytes, 0) * GAP;
  const starts: number[] = [];
  let at = 0;
  cells.forEach((cell, index) => {
    const before = cells[index - 1];
    if (before) at += Math.min(gap, cell.start - before.start - before.bytes);
    starts.push(at);
    at += cell.bytes;
  });
  return { starts, end: at };
};

/** The cells of the same part of the memory that lie side by side, as indexes of the first and the last one. */
const region = ({ cells, owners }: AddressMap, index: number): [number, number] => {
  const key = (at: number): string => {
    const owner = owners[cells[at]?.owner ?? -1];
    return owner === undefined ? "" : `${owner.kind === "free" ? "blocks" : owner.kind} ${owner.name}`;
  };
  let [first, last] = [index, index];
  while (first > 0 && key(first - 1) === key(index)) first--;
  while (last + 1 < cells.length && key(last + 1) === key(index)) last++;
  return [first, last];
};

const hex = (address: number): string => address.toString(16);
const mix = (share: number, from: [number, number, number], to: [number, number, number]): string =>
  `hsl(${from.map((part, index) => part + ((to[index] ?? 0) - part) * share).map((part, index) => (index === 0 ? part : `${part}%`)).join(" ")})`;
const fillColour = (share: number): string => mix(share, [48, 90, 78], [12, 82, 36]);
const ageColour = (share: number): string => mix(share, [185, 50, 72], [270, 55, 38]);
const OTHER = "#9aa5b8";

const colourOf = (map: AddressMap, cell: Cell, paint: State["paint"]): string => {
  const owner = map.owners[cell.owner];
  const kind = owner?.kind ?? "";
  // Blocks of different functions have different shades of the colour of live blocks.
  if (paint === "owner" && owner?.function) return `hsl(${14 + (hash(owner.function) % 22)} 76% ${38 + ((hash(owner.function) >> 8) % 26)}%)`;
  if (paint === "owner") return kindOf(kind)[1];
  const isAllocators = cell.live_bytes > 0 || kind === "free";
  if (paint === "fill") return isAllocators ? fillColour(cell.live_bytes / Math.max(1, cell.resident_bytes)) : OTHER;
  return cell.age_ns === null ? OTHER : ageColour(cell.age_ns / Math.max(1, map.time_ns ?? 1));
};

/** One cell in words. */
const words = ({ owners }: AddressMap, cell: Cell): string => {
  const owner = owners[cell.owner];
  const parts = [`${hex(cell.start)}–${hex(cell.start + cell.bytes)}`, `${kindOf(owner?.kind ?? "")[0]}${owner?.name ? ` (${owner.name})` : ""}`, `${bytes(cell.resident_bytes)} of ${bytes(cell.bytes)} resident`];
  if (cell.live_bytes > 0) parts.push(`${bytes(cell.live_bytes)} (${percent(cell.live_bytes / cell.resident_bytes)}) in live blocks`);
  if (owner?.function) parts.push(`mostly of ${owner.function}`);
  if (cell.age_ns !== null) parts.push(`oldest blocks of its pages ${time(cell.age_ns)} old on average`);
  return parts.join(" · ");
};

/** The time of the state as a query. */
const asked = (state: State, peakTime: number): string => {
  if (state.at !== undefined) return `at=${Math.round(state.at === PEAK ? peakTime : state.at)}`;
  const range = [state.from === undefined ? "" : `from=${Math.round(state.from)}`, state.to === undefined ? "" : `to=${Math.round(state.to)}`];
  return range.filter((word) => word !== "").join("&");
};

export const AddressSpace = (): JSX.Element | null => {
  const { state, peak, status } = usePage();
  const answer = useRaw("map", status.report ? "" : asked(state, peak?.time_ns ?? 0));
  const map = answer.value as unknown as AddressMap | undefined;
  if (answer.error) return <Problem text={answer.error} />;
  if (!map) return null;
  if (map.time_ns === null) {
    return (
      <p class="reason" role="note">
        There is no map of the address space for this time. The recorder writes one at the highest RSS and one at the end, and now and then while the program runs.
      </p>
    );
  }
  return <Strip map={map} at={map.time_ns} />;
};

const Strip = ({ map, at }: { map: AddressMap; at: number }): JSX.Element => {
  const { state, say } = usePage();
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const [chosen, choose] = useState<number | undefined>(undefined);
  const [drag, setDrag] = useState<number | undefined>(undefined);
  const { cells } = map;
  const { starts, end } = places(cells);
  /** The place of an address, also of one in a gap. */
  const placeOf = (address: number): number => {
    const index = cells.findLastIndex((cell) => cell.start <= address);
    const cell = cells[index];
    return cell ? (starts[index] ?? 0) + Math.min(cell.bytes, address - cell.start) : 0;
  };
  const addressOf = (wanted: number): number => {
    const index = Math.max(0, starts.findLastIndex((start) => start <= wanted));
    const cell = cells[index];
    return cell ? cell.start + Math.min(cell.bytes, wanted - (starts[index] ?? 0)) : 0;
  };
  const from = state.mapFrom === undefined ? 0 : placeOf(state.mapFrom);
  const to = Math.max(from + Math.min(CLOSEST, end), state.mapTo === undefined ? end : placeOf(state.mapTo));
  const xOf = (wanted: number): number => ((wanted - from) / (to - from)) * width;
  const atX = (x: number): number => from + (Math.max(0, Math.min(width, x)) / Math.max(1, width)) * (to - from);
  const indexAt = (x: number): number => Math.max(0, starts.findLastIndex((start) => start <= atX(x)));
  const isZoomed = state.mapFrom !== undefined || state.mapTo !== undefined;
  const zoom = (first: number, last: number): void => {
    const [low, high] = [Math.max(0, Math.min(first, last)), Math.min(end, Math.max(first, last))];
    if (low <= 0 && high >= end) change({ mapFrom: undefined, mapTo: undefined });
    else if (high - low >= CLOSEST) change({ mapFrom: addressOf(low), mapTo: addressOf(high) });
  };
  const scale = (by: number, around = (from + to) / 2): void => zoom(around - (around - from) * by, around + (to - around) * by);
  const toRegion = (index: number): void => {
    const [first, last] = region(map, index);
    zoom(starts[first] ?? 0, (starts[last] ?? 0) + (cells[last]?.bytes ?? 0));
  };
  const paintAll = (pen: Pen): void => {
    const { faint, line, text } = ink();
    let labelled = -1e9;
    cells.forEach((cell, index) => {
      const [left, right] = [xOf(starts[index] ?? 0), xOf((starts[index] ?? 0) + cell.bytes)];
      if (right < 0 || left > width) return;
      // Whole pixels, so that there is no seam between cells side by side.
      const begin = Math.floor(left);
      const wide = Math.max(1, Math.floor(right) - begin);
      const high = Math.max(1, (HEIGHT - LABELS) * (cell.resident_bytes / cell.bytes));
      pen.rect(begin, 0, wide, HEIGHT - LABELS, line);
      pen.rect(begin, HEIGHT - LABELS - high, wide, high, colourOf(map, cell, state.paint));
      if (index === chosen) pen.rect(begin, 0, Math.max(2, wide), 3, text);
      const [first, last] = region(map, index);
      const name = map.owners[cell.owner]?.name ?? "";
      const label = name.split("/").at(-1) || kindOf(map.owners[cell.owner]?.kind ?? "")[0];
      const start = Math.max(0, left);
      const room = Math.min(width, xOf((starts[last] ?? 0) + (cells[last]?.bytes ?? 0))) - start;
      if ((index === first || left <= 0) && room > 60 && start > labelled) {
        const fitting = label.slice(0, Math.floor(room / 7));
        pen.text(fitting, start + 2, HEIGHT - LABELS / 2, faint);
        labelled = start + fitting.length * 7;
      }
    });
    if (cells.length === 0) pen.rect(0, 0, width, HEIGHT, ink().paper);
  };
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return;
    const context = sharpen(node, width, HEIGHT);
    if (context) paintAll(new CanvasPen(context));
  });
  const save = (form: "svg" | "png"): void => {
    if (form === "png") canvas.current?.toBlob((blob) => blob && download("map.png", blob));
    else {
      const pen = new SvgPen(width, HEIGHT, "Address space");
      paintAll(pen);
      download("map.svg", pen.finish(ink().paper), "image/svg+xml");
    }
  };
  const x = (event: { clientX: number }): number => event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0);
  const show = (index: number): void => {
    const cell = cells[index];
    if (!cell) return;
    choose(index);
    const [left, right] = [starts[index] ?? 0, (starts[index] ?? 0) + cell.bytes];
    // The view follows the chosen cell.
    if (left < from) zoom(left, left + (to - from));
    else if (right > to) zoom(right - (to - from), right);
    say(words(map, cell));
  };
  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = chosen ?? indexAt(0);
    const moves: Record<string, number> = { ArrowRight: now + 1, ArrowLeft: now - 1, PageDown: now + 20, PageUp: now - 20, Home: 0, End: cells.length - 1 };
    const wanted = moves[event.key];
    const around = chosen === undefined ? undefined : starts[chosen];
    if (wanted !== undefined) show(Math.max(0, Math.min(cells.length - 1, wanted)));
    else if (event.key === "+") scale(1 / 2, around);
    else if (event.key === "-") scale(2, around);
    else if (event.key === "Enter" && chosen !== undefined) toRegion(chosen);
    else if (event.key === "Escape") change({ mapFrom: undefined, mapTo: undefined });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const release = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const began = drag;
    setDrag(undefined);
    if (began !== undefined && Math.abs(began - x(event)) > 4) zoom(atX(began), atX(x(event)));
    else toRegion(indexAt(x(event)));
  };
  const read = chosen === undefined ? undefined : cells[chosen];
  return (
    <div class="card map">
      <header class="card-head">
        <h2>
          Address space at{" "}
          <Num of="map time_ns" value={at}>
            {time(at)}
          </Num>
        </h2>
        <Choices
          label="Colour of the map"
          value={state.paint}
          choices={[
            { value: "owner", text: "owner", title: "By what the memory is used for" },
            { value: "fill", text: "fill", title: "By how much of the resident pages live blocks take" },
            { value: "age", text: "age", title: "By how old the oldest blocks of the pages are" },
          ]}
          onChange={(paint) => change({ paint })}
        />
        <span class="hint">click = zoom to the region · drag = zoom to the range · + and − zoom, arrow keys select</span>
        <span class="push" />
        <button type="button" class="button" disabled={!isZoomed} onClick={() => change({ mapFrom: undefined, mapTo: undefined })}>
          Whole map
        </button>
        <button type="button" class="button" aria-label="Zoom out" disabled={!isZoomed} onClick={() => scale(2)}>
          −
        </button>
        <button type="button" class="button" aria-label="Zoom in" onClick={() => scale(1 / 2)}>
          +
        </button>
        <SaveButtons onSave={save} />
      </header>
      <div
        ref={place}
        class="strip"
        tabIndex={0}
        role="group"
        aria-roledescription="map"
        aria-label={`Address space, ${several(cells.length, "cell")}: arrow keys select a cell, plus and minus zoom, Enter zooms to its region, Escape shows the whole map`}
        onKeyDown={keys}
        onPointerDown={(event) => event.button === 0 && setDrag(x(event))}
        onPointerMove={(event) => choose(indexAt(x(event)))}
        onPointerUp={release}
        onPointerLeave={() => setDrag(undefined)}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${HEIGHT}px` }} role="img" aria-label="Each bar is a stretch of addresses; its height is the part that is resident" />
      </div>
      <p class="status-line" data-cell={chosen}>
        <Label>{read ? words(map, read) : legendOf(map, state.paint)}</Label>
      </p>
    </div>
  );
};

/** What the colours mean. */
const legendOf = (map: AddressMap, paint: State["paint"]): JSX.Element => {
  const swatch = (colour: string, text: string): JSX.Element => (
    <span key={text} class="legend-entry">
      <i class="swatch" style={{ background: colour }} />
      {text}{" "}
    </span>
  );
  if (paint === "fill") return <>{[swatch(fillColour(0), "free"), swatch(fillColour(1), "full of live blocks"), swatch(OTHER, "not the allocator's")]}</>;
  if (paint === "age") return <>{[swatch(ageColour(0), "new blocks"), swatch(ageColour(1), "as old as the program"), swatch(OTHER, "no block whose age is known")]}</>;
  const kinds = [...new Set(map.cells.map((cell) => map.owners[cell.owner]?.kind ?? ""))];
  return <>{kinds.map((kind) => swatch(kindOf(kind)[1], kindOf(kind)[0]))}</>;
};
