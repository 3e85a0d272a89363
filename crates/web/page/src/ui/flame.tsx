// The flame graph. It is drawn on a canvas; for the keyboard and screen readers there is a cursor that moves from box to box and describes it.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { OWNERS } from "../colours";
import { COSTS, type Cost, FLAMES, type Mode, drawable, name } from "../costs";
import { labelOf, where } from "../names";
import { change, useAsk } from "../store";
import { exact, percent, show, signed } from "../units";
import { MOST } from "../work/flame";
import type { FlameAnswer, Row } from "../work/protocol";
import { usePage } from "./context";
import { nameKey } from "./figures";
import { BOX, type Scene, boxAt, drawFlame, heightOf, matched, pathOf, walk } from "./boxes";
import { known } from "./columns";
import { LookTools } from "./look";
import { Choices, Pick, Problem, SaveButtons, Switch, copy, download, ink, useSize } from "./parts";
import { CanvasPen, SvgPen, sharpen } from "./pen";

export const FlameView = (): JSX.Element => {
  const { state, status, ask, look, mode, isDiff } = usePage();
  const costs = FLAMES[mode].filter((one) => known(mode, status.report !== null).includes(one));
  const cost = drawable(state.cost, mode);
  const answer = useAsk("flame", { ask, look, direction: state.up ? "bottom-up" : "top-down", cost, threshold: state.threshold / 100 });
  const [typed, setTyped] = useState(state.search);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => {
    clearTimeout(timer.current);
    setTyped(state.search);
  }, [state.search]);
  const search = (words: string): void => {
    setTyped(words);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ search: words }, "replace"), 150);
  };
  return (
    <section class="view" aria-label="Flame graph">
      <div class="tools">
        <Pick label="measure" value={cost} choices={costs.map((one) => ({ value: one, text: name(one, mode) }))} onChange={(next) => change({ cost: next })} />
        <Choices
          label="Direction"
          value={state.up ? "up" : "down"}
          choices={[
            { value: "down", text: "top-down", title: "From main to the functions that allocate" },
            { value: "up", text: "bottom-up", title: "From the functions that allocate to main" },
          ]}
          onChange={(direction) => change({ up: direction === "up", zoom: "" })}
        />
        <Switch text="icicle" title="Draw the root at the top instead of the bottom" on={state.icicle} onChange={(icicle) => change({ icicle })} />
        <Switch text="collapse recursion" title="Draw a function that calls itself as one box" on={state.recursion} onChange={(recursion) => change({ recursion })} />
        <label class="pick">
          <span>threshold</span>
          <input type="number" min="0" max="99" step="0.01" value={state.threshold} onChange={(event) => change({ threshold: Math.max(0, Number(event.currentTarget.value) || 0) })} />
          <span>%</span>
        </label>
        <LookTools />
        <span class="filter" role="search">
          <input type="search" placeholder="search…" aria-label="Search in the flame graph" value={typed} onInput={(event) => search(event.currentTarget.value)} data-key="/" />
        </span>
      </div>
      {answer.error && <Problem text={answer.error} />}
      {answer.value && <Graph answer={answer.value} cost={cost} big />}
      <div class="legend">
        {isDiff ? (
          <>
            <span class="legend-entry">
              <i style={{ background: "hsl(14 80% 60%)" }} />
              more than in the base
            </span>
            <span class="legend-entry">
              <i style={{ background: "hsl(214 75% 60%)" }} />
              less than in the base; the width of a box is the larger of the two
            </span>
          </>
        ) : (
          OWNERS.map(([id, text, colour]) => (
            <span key={id} class="legend-entry">
              <i style={{ background: colour }} />
              {text}
            </span>
          ))
        )}
        {answer.value && <Hidden {...answer.value.flame.cut} threshold={state.threshold} />}
      </div>
    </section>
  );
};

/** Says how many boxes were left out, and why. */
const Hidden = ({ small, beyond, threshold }: { small: number; beyond: number; threshold: number }): JSX.Element => {
  const boxes = (count: number): string => `${exact(count)} ${count === 1 ? "box" : "boxes"}`;
  return (
    <>
      {small > 0 && <span class="legend-entry hint" data-label="">{boxes(small)} under {threshold} % hidden</span>}
      {beyond > 0 && <span class="legend-entry hint" data-label="">{boxes(beyond)} hidden, because about {exact(MOST)} are drawn at most</span>}
    </>
  );
};

/** The small flame graph on the first screen. */
export const MiniFlame = ({ cost }: { cost: Cost }): JSX.Element => {
  const { ask, look, mode } = usePage();
  const answer = useAsk("flame", { ask, look, direction: "top-down", cost, threshold: 0.002 });
  return (
    <section class="card flame-card" aria-label="Flame graph, small">
      <header class="card-head">
        <h2>Flame graph</h2>
        <span class="hint">{COSTS[cost].kind === "bytes" ? "bytes" : "number"}: {name(cost, mode).toLowerCase()} · colour = owner of the code</span>
        <span class="push" />
        <button type="button" class="link" onClick={() => change({ view: "flame", cost })}>
          open
        </button>
      </header>
      {answer.error && <Problem text={answer.error} />}
      {answer.value && <Graph answer={answer.value} cost={cost} big={false} />}
    </section>
  );
};

/** The total of a flame graph. The peak is a moment, all other costs are totals. */
const totalText = (amount: string, cost: Cost, mode: Mode): string => {
  if (cost === "peak_bytes" && mode !== "moment") return `${amount} at the ${mode === "range" ? "range's " : ""}peak`;
  return `${amount} ${name(cost, mode).toLowerCase()} in total`;
};

const Graph = ({ answer, cost, big }: { answer: FlameAnswer; cost: Cost; big: boolean }): JSX.Element => {
  const { state, look, mode, pick, say, isDiff } = usePage();
  const { flame, labels, total } = answer;
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const [hover, setHover] = useState(-1);
  const [cursor, setCursor] = useState(0);
  useEffect(() => setCursor(0), [flame]);
  const zoom = useMemo(() => (big ? walk(flame, state.zoom) : 0), [flame, state.zoom, big]);
  const { kind } = COSTS[cost];
  const text = (index: number): string => (index === 0 ? totalText(show(total, kind), cost, mode) : labelOf(labels.get(flame.key[index] ?? 0) ?? NOBODY, look.merge, state.full));
  const search = big ? state.search : "";
  const found = useMemo(() => (search ? matched(flame, labels, search) : undefined), [flame, labels, search]);
  const height = heightOf(flame, zoom, big ? 4000 : 7);
  const scene: Scene = { flame, labels, text, zoom, width, height, up: big && !state.icicle, hover, cursor: big ? cursor : -1, found: found?.boxes, isDiff, ink: ink() };
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return undefined;
    const handle = requestAnimationFrame(() => {
      const context = sharpen(node, width, height);
      if (context) drawFlame(new CanvasPen(context), context, scene);
    });
    return () => cancelAnimationFrame(handle);
  });

  const describe = (index: number): string => {
    if (index < 0 || index >= flame.count) return "";
    const amount = flame.value[index] ?? 0;
    const parent = flame.parent[index] ?? -1;
    const ofParent = parent > 0 ? `, ${percent(amount / Math.max(1, flame.value[parent] ?? 1))} of its ${state.up ? "callee" : "caller"}` : "";
    const base = flame.base?.[index];
    const level = labels.get(flame.key[index] ?? 0);
    const place = level ? where(level) : "";
    if (base !== undefined) return `${text(index)}: ${show(base, kind)} → ${show(amount, kind)} (${signed(amount - base, kind)})`;
    return index === 0 ? text(0) : `${text(index)}${place ? ` (${place})` : ""}: ${show(amount, kind)}, ${percent(amount / Math.max(1, total))} of the total${ofParent}`;
  };
  const rowOf = (index: number): Row => ({ level: labels.get(flame.key[index] ?? 0) ?? NOBODY, key: flame.key[index] ?? 0, sums: new Float64Array(0), base: undefined });
  const select = (index: number): void => {
    if (index > 0) pick({ title: labelOf(rowOf(index).level, look.merge, true), level: rowOf(index).level, selection: { of: "tree", direction: big && state.up ? "bottom-up" : "top-down", path: pathOf(flame, index) } });
  };
  const zoomTo = (index: number): void => {
    if (big) change({ zoom: pathOf(flame, index) });
    else change({ view: "flame", cost, up: false, zoom: pathOf(flame, index) });
  };
  const pointed = (event: { offsetX: number; offsetY: number }): number => boxAt(scene, event.offsetX, event.offsetY);
  const move = (to: number): void => {
    if (to < 0 || to >= flame.count) return;
    setCursor(to);
    say(describe(to));
  };
  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    const parent = flame.parent[cursor] ?? -1;
    const next = flame.end[cursor] ?? 0;
    const deeper = state.icicle ? "ArrowDown" : "ArrowUp";
    const back = state.icicle ? "ArrowUp" : "ArrowDown";
    if (event.altKey) return;
    if (event.key === deeper) {
      if (next > cursor + 1) move(cursor + 1);
    } else if (event.key === back) move(Math.max(0, parent));
    else if (event.key === "ArrowRight") {
      if (next < flame.count && flame.parent[next] === parent) move(next);
    } else if (event.key === "ArrowLeft") {
      for (let index = cursor - 1; index > parent; index--) {
        if (flame.parent[index] === parent) {
          move(index);
          break;
        }
      }
    } else if (event.key === "Enter") zoomTo(cursor);
    else if (event.key === " ") select(cursor);
    else if (event.key === "Escape" && state.zoom) change({ zoom: "" });
    else if (event.key === "c" && (event.ctrlKey || event.metaKey)) void copy(describe(cursor));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const save = (form: "svg" | "png"): void => {
    const title = `heaptrack: ${name(cost, mode)}`;
    if (form === "png") canvas.current?.toBlob((blob) => blob && download("flame.png", blob));
    else {
      const pen = new SvgPen(width, height, title);
      drawFlame(pen, undefined, { ...scene, hover: -1, cursor: -1 });
      download("flame.svg", pen.finish(scene.ink.paper), "image/svg+xml");
    }
  };
  const told = hover >= 0 ? hover : cursor;
  return (
    <div class={big ? "flame big" : "flame"}>
      {big && (
        <div class="flame-line">
          <button type="button" class="button" title="Back (Alt+Left)" aria-label="Back" onClick={() => history.back()}>
            ◂
          </button>
          <button type="button" class="button" title="Forward (Alt+Right)" aria-label="Forward" onClick={() => history.forward()}>
            ▸
          </button>
          <button type="button" class="button" disabled={!state.zoom} title="Show all (Esc)" onClick={() => change({ zoom: "" })}>
            Reset
          </button>
          <button type="button" class="button" disabled={told <= 0} title="Callers and callees of this box" onClick={() => told > 0 && change({ view: "callers", fn: nameKey(rowOf(told), state) })}>
            Callers
          </button>
          <button type="button" class="button" title="Copy the description of this box" onClick={() => void copy(describe(told)).then(() => say("Copied."))}>
            Copy
          </button>
          <SaveButtons onSave={save} />
          <output class="flame-text" {...(told === 0 ? { "data-number": cost, "data-value": total } : {})}>
            {describe(told)}
          </output>
          {found && (
            <output class="found" aria-label="Search result">
              {show(found.total, kind)} ({percent(found.total / Math.max(1, total))} of {show(total, kind)}) match the search
            </output>
          )}
        </div>
      )}
      <div
        ref={place}
        class="flame-paper"
        tabIndex={big ? 0 : -1}
        role="application"
        aria-roledescription="flame graph"
        aria-label="Flame graph: arrow keys move from box to box, Enter zooms, Space shows details, Escape shows all"
        onKeyDown={big ? keys : () => undefined}
      >
        <canvas
          ref={canvas}
          style={{ width: `${width}px`, height: `${height}px` }}
          onPointerMove={(event) => setHover(pointed(event))}
          onPointerLeave={() => setHover(-1)}
          onClick={(event) => {
            const index = pointed(event);
            if (index < 0) return;
            setCursor(index);
            if (event.shiftKey || event.ctrlKey) select(index);
            else {
              select(index);
              zoomTo(index);
            }
          }}
          onContextMenu={(event) => {
            const index = pointed(event);
            if (index <= 0) return;
            event.preventDefault();
            setCursor(index);
            select(index);
          }}
          onWheel={(event) => {
            if (!big || (!event.ctrlKey && !event.metaKey)) return;
            event.preventDefault();
            const index = pointed(event);
            if (event.deltaY < 0 && index > 0) zoomTo(nextTo(flame, zoom, index));
            else if (event.deltaY > 0 && zoom > 0) zoomTo(Math.max(0, flame.parent[zoom] ?? 0));
          }}
          title={hover >= 0 ? describe(hover) : undefined}
        />
        {flame.count <= 1 && <div class="empty">Nothing to show for this measure.</div>}
      </div>
      {!big && <output class="flame-text">{hover >= 0 ? describe(hover) : " "}</output>}
    </div>
  );
};

/** The child of `zoom` that contains the box `index`. */
const nextTo = (flame: FlameAnswer["flame"], zoom: number, index: number): number => {
  let at = index;
  while (at > 0 && flame.parent[at] !== zoom) at = flame.parent[at] ?? 0;
  return at > 0 ? at : index;
};

const NOBODY = { function: null, short: null, file: null, line: null, module: null, offset: null, class: null, inlined: false };
export { BOX };
