// The views Consumed, Allocations and Temporary: one large chart each, with its switches.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { timeless } from "../state";
import { change } from "../store";
import { time } from "../units";
import { type Drawing, BOTTOM, LEFT, RIGHT, draw, indexAt, timeOf, xOf } from "./area";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { Choices, Empty, NotCompared, Problem, SaveButtons, Switch, download, ink, useSize, WholeOnly } from "./parts";
import { CanvasPen, SvgPen, sharpen } from "./pen";
import { type Timeline, type What, formatTime, series } from "./series";
import { Legend } from "./timeline";

const HEIGHT = 380;
const TITLES: Record<What, string> = { live_bytes: "Memory consumed", allocations: "Allocations", temporary: "Temporary allocations" };

export const ChartView = ({ what }: { what: What }): JSX.Element => {
  const { state, status, peak } = usePage();
  const words = new URLSearchParams(status.report ? "" : timeless(state));
  words.set("points", what === "live_bytes" ? "512" : "160");
  words.set("top", String(Math.max(1, state.bands)));
  // The bands are the functions with the highest values of what is drawn.
  if (what !== "live_bytes") words.set("cost", what);
  const isZoomed = state.from !== undefined && state.to !== undefined;
  if (isZoomed && !status.report) {
    words.set("from", String(Math.round(state.from ?? 0)));
    words.set("to", String(Math.round(state.to ?? 0)));
  }
  const answer = useRaw("timeline", words.toString());
  const data = answer.value as unknown as Timeline | undefined;
  const isLevel = what === "live_bytes";
  return (
    <section class="view chart" aria-label={TITLES[what]}>
      <div class="tools">
        {!isLevel && (
          <Choices
            label="Rate or sum"
            value={state.cumulative ? "sum" : "rate"}
            choices={[
              { value: "rate", text: "per second" },
              { value: "sum", text: "cumulative" },
            ]}
            onChange={(shape) => change({ cumulative: shape === "sum" })}
          />
        )}
        <label class="pick">
          <span>bands</span>
          <input type="number" min="0" max="50" value={state.bands} onChange={(event) => change({ bands: Math.max(0, Math.min(50, Number(event.currentTarget.value) || 0)) })} />
        </label>
        <Switch text="legend" on={state.legend} onChange={(legend) => change({ legend })} />
        <Switch text="total" title="Draw a line for the total" on={state.total} onChange={(total) => change({ total })} />
        <Switch text="by function" title="Draw a band for each owning function" on={state.detail} onChange={(detail) => change({ detail })} />
        <Switch text="log" title="Logarithmic scale" on={state.log} onChange={(log) => change({ log })} />
        {isLevel && <Switch text="RSS" on={state.chart === "rss"} onChange={(on) => change({ chart: on ? "rss" : "live" })} />}
        <span class="push" />
        <span class="hint" data-label="">{isZoomed && !status.report ? `${time(state.from ?? 0)} to ${time(state.to ?? 0)} (${time((state.to ?? 0) - (state.from ?? 0))})` : "drag = range"}</span>
      </div>
      <NotCompared />
      <WholeOnly what="this chart" isTimeless={!isZoomed} />
      {answer.error && <Problem text={answer.error} />}
      {data && peak && data.time_ns.length > 0 ? <Chart data={data} what={what} /> : peak && !answer.busy && <Empty>Nothing was recorded in this time.</Empty>}
    </section>
  );
};

const Chart = ({ data, what }: { data: Timeline; what: What }): JSX.Element => {
  const { state, live } = usePage();
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const [hover, setHover] = useState<number | undefined>(undefined);
  const [drag, setDrag] = useState<[number, number] | undefined>(undefined);
  const shape = series(data, what, { rate: !state.cumulative, detail: state.detail && state.bands > 0, total: state.total, rss: state.chart === "rss", keep: state.bands });
  const drawing: Drawing = { width, height: HEIGHT, from: data.range.from_ns, to: Math.max(data.range.to_ns, data.range.from_ns + 1), ...shape, log: state.log, formatTime, ink: ink() };
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return;
    const context = sharpen(node, width, HEIGHT);
    if (context) draw(new CanvasPen(context), drawing);
  });
  const save = (form: "svg" | "png"): void => {
    if (form === "png") canvas.current?.toBlob((blob) => blob && download(`${what}.png`, blob));
    else {
      const pen = new SvgPen(width, HEIGHT, TITLES[what]);
      draw(pen, drawing);
      download(`${what}.svg`, pen.finish(drawing.ink.paper), "image/svg+xml");
    }
  };
  const eventTime = (event: { clientX: number }): number => timeOf(drawing, event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0));
  const index = hover === undefined ? undefined : indexAt(shape.times, hover);
  const [low, high] = drag ? (drag[0] < drag[1] ? drag : [drag[1], drag[0]]) : [0, 0];
  return (
    <div class="card">
      <header class="card-head">
        <h2>{TITLES[what]}</h2>
        <span class="hint">{shape.unit}</span>
        <span class="push" />
        <SaveButtons onSave={save} />
      </header>
      <div
        ref={place}
        class="plot"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          const at = eventTime(event);
          setDrag([at, at]);
        }}
        onPointerMove={(event) => {
          const at = eventTime(event);
          setHover(at);
          if (drag) setDrag([drag[0], at]);
        }}
        onPointerUp={() => {
          setDrag(undefined);
          if (drag && xOf(drawing, high) - xOf(drawing, low) > 4) change({ at: undefined, from: Math.round(low), to: Math.round(high) });
        }}
        onPointerLeave={() => setHover(undefined)}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${HEIGHT}px` }} role="img" aria-label={`${TITLES[what]} over time. The legend shows the numbers under the mouse; print --json --view timeline prints them all`} />
        {drag && <div class="brush" style={{ left: `${Math.max(LEFT, xOf(drawing, low))}px`, width: `${Math.max(1, Math.min(width - RIGHT, xOf(drawing, high)) - xOf(drawing, low))}px`, height: `${HEIGHT - BOTTOM}px` }} />}
        {hover !== undefined && <div class="cursor" style={{ left: `${xOf(drawing, hover)}px`, top: "0", height: `${HEIGHT - BOTTOM}px` }} />}
      </div>
      {state.legend && <Legend drawing={drawing} index={index} hover={hover} moment={what === "live_bytes" && hover === undefined ? live : undefined} />}
    </div>
  );
};
