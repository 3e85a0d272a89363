// The timeline above every view. Dragging selects a range, a click selects a moment, a shift-click compares two moments.
//
// Must hold: it always shows the whole session (or the zoomed part) and marks the selected range or moment. Ranges and moments can be selected
// and compared with the keyboard, too.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { PEAK, type State, filtered, momentText, timeless } from "../state";
import { change } from "../store";
import { bytes, count, signed, time } from "../units";
import { type Band, type Drawing, type Line, LEFT, RIGHT, TOP, BOTTOM, draw, indexAt, timeOf, valueAt, xOf } from "./area";
import { type Page, usePage } from "./context";
import { overlaid, overlay } from "./overlay";
import { useRaw, useRaws } from "./raw";
import { Num } from "./number";
import { Choices, Problem, WholeOnly, dark, ink, useSize } from "./parts";
import { CanvasPen, sharpen } from "./pen";
import { type Timeline as Answer, formatTime, series } from "./series";
import { ProcessLanes, ThreadLanes } from "./lanes";

/** How many pixels around the selected moment count as that moment. */
const NEAR = 5;
/** Higher on large screens. */
const HEIGHT = innerHeight > 1600 ? 300 : innerHeight > 1150 ? 220 : innerHeight > 800 ? 168 : 112;

export const Timeline = (): JSX.Element => {
  const { state, trace, runtime, status, peak } = usePage();
  const zoomed = state.zoomFrom !== undefined && state.zoomTo !== undefined;
  const words = new URLSearchParams(status.report ? "" : timeless(state));
  words.set("points", "256");
  words.set("top", "10");
  if (state.chart === "rate") words.set("cost", "allocations");
  // The lifetime of a block depends on the end of the range. With a filter by lifetime, a shorter range would be about other blocks, so the whole session is requested and a part is drawn.
  if (zoomed && !status.report && state.lifetime === undefined) {
    words.set("from", String(state.zoomFrom));
    words.set("to", String(state.zoomTo));
  }
  const answer = useRaw("timeline", words.toString());
  const data = answer.value as unknown as Answer | undefined;
  const isRate = state.chart === "rate";
  const others = overlaid(state);
  // Whole timelines, also of this trace, so that zooming does not change the scale of a line.
  const whole = new URLSearchParams(timeless(state));
  whole.set("points", "256");
  whole.set("top", "0");
  const compared = useRaws("timeline", whole.toString(), data && others.length > 0 ? [state.file, ...others] : []);
  return (
    <section class="card timeline" aria-label="Timeline">
      <header class="card-head">
        <h2>{isRate ? "Allocations per second" : state.chart === "rss" ? "Live heap and RSS" : state.chart === "threads" ? "Live heap by allocating thread" : state.chart === "processes" ? "Live heap by allocating process" : "Live heap by owner"}</h2>
        <span class="hint">drag = range · click = moment · shift-click = compare with · ctrl-wheel = zoom</span>
        <span class="push" />
        {zoomed && (
          <button type="button" class="button" onClick={() => change({ zoomFrom: undefined, zoomTo: undefined })}>
            Zoom out
          </button>
        )}
        {!zoomed && state.from !== undefined && state.to !== undefined && (
          <button type="button" class="button" title="Show only the range in the timeline" onClick={() => change({ zoomFrom: state.from, zoomTo: state.to })}>
            Zoom to range
          </button>
        )}
        <Choices
          label="What the timeline shows"
          value={state.chart}
          choices={[
            { value: "live", text: "live" },
            { value: "rate", text: "rate" },
            { value: "rss", text: "RSS" },
            { value: "threads", text: "threads" },
            ...((trace.session?.processes ?? 0) > 0 ? [{ value: "processes" as const, text: "processes" }] : []),
          ]}
          onChange={(chart) => change({ chart })}
        />
      </header>
      <WholeOnly what="the timeline" isTimeless />
      {answer.error && <Problem text={answer.error} />}
      {compared.error && <Problem text={compared.error} />}
      {data && peak && state.chart === "threads" ? <ThreadLanes /> : data && peak && state.chart === "processes" ? <ProcessLanes /> : data && peak && <Plot data={data} compared={(compared.value ?? []) as unknown as Answer[]} state={state} runtime={runtime} />}
      {!(data && peak) && !answer.error && <div class="plot-space" />}
    </section>
  );
};

const Plot = ({ data, compared, state, runtime }: { data: Answer; compared: Answer[]; state: State; runtime: number }): JSX.Element => {
  const { say, status, peak, live } = usePage();
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const [hover, setHover] = useState<number | undefined>(undefined);
  const [drag, setDrag] = useState<[number, number] | undefined>(undefined);
  const last = useRef(0);
  // A drag is one step of the browser's history.
  const isStepped = useRef(false);
  const isRate = state.chart === "rate";
  const what = isRate ? "allocations" : "live_bytes";
  const shape = series(data, what, { rate: isRate, detail: state.chart !== "rss", total: true, rss: state.chart === "rss", keep: 10 });
  const others = overlay(compared, state, status, what, ink(), dark());
  shape.lines.push(...others);
  const from = state.zoomFrom ?? data.range.from_ns;
  const to = state.zoomTo ?? Math.max(data.range.to_ns, data.range.from_ns + 1);
  const drawing: Drawing = { width, height: HEIGHT, from, to, ...shape, log: state.log, formatTime, ink: ink() };
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return;
    const context = sharpen(node, width, HEIGHT);
    if (context) draw(new CanvasPen(context), drawing);
  });

  const commit = (range: [number, number], how: "push" | "replace"): void => {
    const [low, high] = range[0] < range[1] ? range : [range[1], range[0]];
    change({ at: undefined, from: Math.round(low), to: Math.round(high), compare: state.compare?.startsWith("@") ? undefined : state.compare }, how);
  };
  const moment = (at: number, shift: boolean): void => {
    if (shift && state.at !== undefined) change({ compare: state.at === PEAK ? "@peak" : `@${Math.round(state.at)}`, at: Math.round(at), from: undefined, to: undefined });
    else change({ at: Math.round(at), from: undefined, to: undefined, compare: state.compare?.startsWith("@") ? undefined : state.compare });
  };
  const eventTime = (event: { clientX: number }): number => timeOf(drawing, event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0));
  const shownHover = drag ? drag[1] : hover;
  const index = shownHover === undefined ? undefined : indexAt(shape.times, shownHover);
  const peakTime = peak?.time_ns ?? data.peak.time_ns;
  // Under the mouse, the legend shows the highest values of a slice. At the selected moment it shows the exact values, also while the mouse is still there after the
  // click.
  const momentX = state.at === undefined ? undefined : xOf(drawing, state.at === PEAK ? peakTime : state.at);
  const isAtMoment = momentX !== undefined && (shownHover === undefined || Math.abs(xOf(drawing, shownHover) - momentX) <= NEAR);
  const selection: [number, number] | undefined = drag ?? (state.from !== undefined || state.to !== undefined ? [state.from ?? 0, state.to ?? runtime] : undefined);

  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    const size = (to - from) / 100;
    const now = hover ?? (state.at === undefined || state.at === PEAK ? peakTime : state.at);
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const next = Math.max(from, Math.min(to, now + (event.key === "ArrowRight" ? size : -size) * (event.ctrlKey ? 10 : 1)));
      if (event.shiftKey) commit([state.from ?? now, next], "replace");
      setHover(next);
      say([`${time(next)}: ${readout(data, shape.times, next)}`, ...others.map((line) => `${line.name}: ${told(drawing, line, next)}`)].join("; "));
    } else if (event.key === "Enter" || event.key === " ") moment(now, event.shiftKey);
    else if (event.key === "p") moment(PEAK, false);
    else if (event.key === "Escape") change({ at: undefined, from: undefined, to: undefined, compare: state.compare?.startsWith("@") ? undefined : state.compare });
    else return;
    event.preventDefault();
  };
  const peakX = xOf(drawing, peakTime);
  const isInSight = (time: number): boolean => time > from && time <= to;
  // The timeline of a report ignores filters.
  const isPart = filtered(state) && !status.report;
  const peakValue = isPart ? (data.totals.peak_bytes ?? 0) : (peak?.bytes ?? 0);
  // In folded time (`--max-size`), the filtered part of the peak is known for the whole session only, not for a zoomed part.
  const foldedUntil = status.traces[state.file]?.session?.folded_until_ns ?? 0;
  const isZoomed = state.zoomFrom !== undefined || state.zoomTo !== undefined;
  const isPeakKnown = isInSight(peakTime) && !(isPart && isZoomed && peakTime < foldedUntil);
  const peakText = isPart ? `${bytes(peakValue)} at the process's peak, ${time(peakTime)}` : `peak ${bytes(peakValue)} at ${time(peakTime)}`;
  return (
    <>
      <div
        ref={place}
        class="plot"
        tabIndex={0}
        role="group"
        aria-roledescription="timeline"
        aria-label="Timeline: arrow keys move, Enter shows what was live at that moment, Shift with arrows selects a range, P goes to the peak, Escape clears"
        onKeyDown={keys}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          const at = eventTime(event);
          isStepped.current = false;
          setDrag([at, at]);
        }}
        onPointerMove={(event) => {
          const at = eventTime(event);
          setHover(at);
          if (!drag) return;
          const next: [number, number] = [drag[0], at];
          setDrag(next);
          // The tables follow the mouse. A request for every pixel would only delay them.
          if (Math.abs(xOf(drawing, drag[0]) - xOf(drawing, at)) > 4 && event.timeStamp - last.current > 100) {
            last.current = event.timeStamp;
            commit(next, isStepped.current ? "replace" : "push");
            isStepped.current = true;
          }
        }}
        onPointerUp={(event) => {
          if (!drag) return;
          const end = eventTime(event);
          setDrag(undefined);
          if (Math.abs(xOf(drawing, drag[0]) - xOf(drawing, end)) > 4) commit([drag[0], end], isStepped.current ? "replace" : "push");
          else moment(Math.abs(peakX - xOf(drawing, end)) <= 4 && !isRate ? PEAK : end, event.shiftKey);
        }}
        onPointerLeave={() => setHover(undefined)}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.metaKey) return;
          event.preventDefault();
          const at = eventTime(event);
          const factor = event.deltaY > 0 ? 1.4 : 1 / 1.4;
          const low = Math.max(0, at - (at - from) * factor);
          const high = Math.min(runtime, at + (to - at) * factor);
          const whole = low <= 0 && high >= runtime;
          change({ zoomFrom: whole ? undefined : Math.round(low), zoomTo: whole ? undefined : Math.round(high) }, "replace");
        }}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${HEIGHT}px` }} role="img" aria-label={[`${isRate ? "Allocations per second" : "Live heap"} over time${isPeakKnown ? `, ${peakText}` : ""}`, ...others.map((line) => `${line.name}: at most ${shape.format(Math.max(0, ...line.values))}`)].join("; ")} />
        <Folded drawing={drawing} until={foldedUntil} />
        {selection && <Selection drawing={drawing} range={selection} data={data} times={shape.times} showDelta={drag !== undefined} />}
        {state.compare?.startsWith("@") && <Marker drawing={drawing} time={state.compare === "@peak" ? peakTime : Number(state.compare.slice(1))} text="base" kind="base" />}
        {state.at !== undefined && <Marker drawing={drawing} time={state.at === PEAK ? peakTime : state.at} text={`live at ${momentText(state.at, time)}`} kind="moment" />}
        {isPart && !isRate && data.own_peak && data.own_peak.bytes > 0 && <OwnPeak drawing={drawing} peak={data.own_peak} />}
        {!isRate && isPeakKnown && (
          <button
            type="button"
            class={peakX > width - 220 ? "peak left" : "peak"}
            style={{ left: `${peakX}px`, height: `${HEIGHT - BOTTOM - 2}px` }}
            title="Show what was live at the peak"
            onPointerDown={(event) => event.stopPropagation()}
            onPointerUp={(event) => event.stopPropagation()}
            onClick={(event) => moment(PEAK, event.shiftKey)}
          >
            <span data-number="pill peak_bytes" data-value={peakValue} data-time={peakTime}>
              {peakText}
            </span>
          </button>
        )}
        {shownHover !== undefined && index !== undefined && (
          <div class="cursor" style={{ left: `${xOf(drawing, shownHover)}px`, top: `${TOP}px`, height: `${HEIGHT - TOP - BOTTOM}px` }} />
        )}
      </div>
      <Legend drawing={drawing} index={index} hover={shownHover} moment={isAtMoment && !isRate ? live : undefined} />
    </>
  );
};

/** The moment at which the filtered blocks held most, which is seldom the process's peak. */
const OwnPeak = ({ drawing, peak }: { drawing: Drawing; peak: { bytes: number; time_ns: number } }): JSX.Element => {
  const x = xOf(drawing, peak.time_ns);
  return (
    <div class={x > drawing.width - 220 ? "own-peak left" : "own-peak"} style={{ left: `${x}px`, height: `${drawing.height - BOTTOM - 2}px` }} title="When the filtered blocks were at their own peak">
      <span data-number="pill own_peak" data-value={peak.bytes} data-time={peak.time_ns}>
        own peak {bytes(peak.bytes)} at {time(peak.time_ns)}
      </span>
    </div>
  );
};

/** The value of a line, for people. */
const told = (drawing: Drawing, line: Line, at: number): string => {
  const amount = valueAt(drawing, line, at);
  return amount === undefined ? "ended" : drawing.format(amount);
};

const readout = (data: Answer, times: number[], at: number): string => {
  const index = indexAt(times, at);
  return `${bytes(data.live_bytes[index] ?? 0)} in ${count(data.live_allocations[index] ?? 0)} blocks`;
};

/** The time for which the trace has only sums. The curve shows the blocks that survived it. */
const Folded = ({ drawing, until }: { drawing: Drawing; until: number }): JSX.Element | null => {
  const right = Math.min(drawing.width - RIGHT, xOf(drawing, until));
  if (right <= LEFT) return null;
  return (
    <div class="folded" style={{ left: `${LEFT}px`, width: `${right - LEFT}px`, top: `${TOP}px`, height: `${drawing.height - TOP - BOTTOM}px` }}>
      <span>
        before{" "}
        <Num of="folded_until_ns" value={until}>
          {time(until)}
        </Num>
        : only the peak and surviving blocks (--max-size)
      </span>
    </div>
  );
};

export const Marker = ({ drawing, time: at, text, kind }: { drawing: Drawing; time: number; text: string; kind: string }): JSX.Element | null => {
  const x = xOf(drawing, at);
  if (x < LEFT - 1 || x > drawing.width - RIGHT + 1) return null;
  return (
    <div class={`marker ${kind}${x > drawing.width - 160 ? " left" : ""}`} style={{ left: `${x}px`, height: `${drawing.height - BOTTOM}px` }}>
      <span>{text}</span>
    </div>
  );
};

const Selection = ({ drawing, range, data, times, showDelta }: { drawing: Drawing; range: [number, number]; data: Answer; times: number[]; showDelta: boolean }): JSX.Element | null => {
  const [low, high] = range[0] < range[1] ? range : [range[1], range[0]];
  const left = Math.max(LEFT, xOf(drawing, low));
  const right = Math.min(drawing.width - RIGHT, xOf(drawing, high));
  if (right < left) return null;
  const start = data.live_bytes_end[Math.max(0, indexAt(times, low) - 1)] ?? 0;
  const end = data.live_bytes_end[indexAt(times, high)] ?? 0;
  return (
    <div class="brush" style={{ left: `${left}px`, width: `${Math.max(1, right - left)}px`, height: `${drawing.height - BOTTOM}px` }}>
      {showDelta && (
        <table class="delta">
          <thead>
            <tr>
              <th />
              <th>start</th>
              <th>end</th>
              <th>delta</th>
            </tr>
          </thead>
          <tbody>
            <tr>
              <th>time</th>
              <td>{time(low)}</td>
              <td>{time(high)}</td>
              <td>{time(high - low)}</td>
            </tr>
            <tr>
              <th>live</th>
              <td>{bytes(start)}</td>
              <td>{bytes(end)}</td>
              <td>{signed(end - start, "bytes")}</td>
            </tr>
          </tbody>
        </table>
      )}
    </div>
  );
};

/** What each band holds at the selected moment. `other` is the rest. */
const heldAt = (drawing: Drawing, moment: Moment): ((band: Band) => number) => {
  const of = ({ key }: Band): number => (key === undefined ? 0 : (moment.byFunction.get(key) ?? 0));
  const named = drawing.bands.reduce((sum, band) => sum + of(band), 0);
  return (band) => (band.key === undefined ? moment.bytes - named : of(band));
};
type Moment = NonNullable<Page["live"]>;

/** The time and the total: exact at a selected moment, else the highest value of the slice under the mouse. */
const Read = ({ drawing, index, hover, moment }: { drawing: Drawing; index: number | undefined; hover: number | undefined; moment: Moment | undefined }): JSX.Element | null => {
  if (moment)
    return (
      <span class="legend-entry read">
        <span data-number="to_ns" data-value={moment.time_ns}>
          {time(moment.time_ns)}
        </span>{" "}
        · total{" "}
        <b data-number="live_bytes" data-value={moment.bytes}>
          {drawing.format(moment.bytes)}
        </b>
      </span>
    );
  if (index === undefined || hover === undefined) return null;
  const total = drawing.total?.[index] ?? drawing.bands.reduce((sum, band) => sum + (band.values[index] ?? 0), 0);
  return (
    <span class="legend-entry read">
      {drawing.stepped ? time(hover) : `${time(drawing.times[index] ?? 0)} to ${time(drawing.times[index + 1] ?? 0)}, at its highest`} · total <b>{drawing.format(total)}</b>
    </span>
  );
};

/** The names of the bands, and their values at the selected moment or under the mouse. */
export const Legend = ({ drawing, index, hover, moment }: { drawing: Drawing; index: number | undefined; hover: number | undefined; moment: Moment | undefined }): JSX.Element => {
  const held = moment && heldAt(drawing, moment);
  return (
    <div class="legend">
      {[...drawing.bands].reverse().map((band) => (
        <span key={band.key ?? band.name} class="legend-entry" title={band.name} data-function={band.key} data-colour={band.colour}>
          <i style={{ background: band.colour }} />
          <span class="legend-name">{band.name}</span>
          {held ? (
            <b data-number="band live_bytes" data-value={held(band)}>
              {drawing.format(held(band))}
            </b>
          ) : (
            index !== undefined && <b>{drawing.format(band.values[index] ?? 0)}</b>
          )}
        </span>
      ))}
      {drawing.lines.map((line) => (
        <span key={line.name} class="legend-entry" title={line.name}>
          <svg class="stroke" width="27" height="4" aria-hidden="true">
            <line x1="0" y1="2" x2="27" y2="2" stroke={line.colour} stroke-width={line.dash ? 2.5 : 2} stroke-dasharray={line.dash?.join(" ")} />
          </svg>
          <span class="legend-name">{line.name}</span>
          {hover !== undefined && <b data-value={valueAt(drawing, line, hover)}>{told(drawing, line, hover)}</b>}
        </span>
      ))}
      <Read drawing={drawing} index={index} hover={hover} moment={moment} />
    </div>
  );
};
