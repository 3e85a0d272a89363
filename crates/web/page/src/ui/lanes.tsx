// A lane for each of the threads whose blocks were the largest part of the peak (`MOST`), or of the processes that held most: the live bytes that it allocated, over time.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ask } from "../client";
import { PALETTE } from "../colours";
import { timeless, whole } from "../state";
import { change, useAnswer } from "../store";
import { bytes } from "../units";
import { LEFT, RIGHT, xOf } from "./area";
import { usePage } from "./context";
import { Empty, Problem, ink, useSize } from "./parts";
import { CanvasPen, type Point, sharpen } from "./pen";
import type { Timeline } from "./series";

const MOST = 6;
const LANE = 26;

type Thread = { index: number; tid: number | null; name: string | null; costs: Record<string, number> };

export const threadName = (thread: { index: number; tid: number | null; name: string | null }): string =>
  thread.name ? `${thread.name} (${thread.tid ?? thread.index})` : `thread ${thread.tid ?? thread.index}`;

export const ThreadLanes = (): JSX.Element => {
  const { state, ask: about, status } = usePage();
  const answer = useAnswer(async () => {
    const list = (await ask("raw", { view: "threads", trace: state.file, query: whole(state), version: about.version })).threads as Thread[];
    const shown = [...list].sort((a, b) => (b.costs.peak_bytes ?? 0) - (a.costs.peak_bytes ?? 0)).slice(0, MOST);
    if (status.report) return { list, lanes: [] };
    const lanes = await Promise.all(
      shown.map(async (thread) => {
        const words = new URLSearchParams(timeless({ ...state, thread: [thread.index] }));
        words.set("points", "256");
        words.set("top", "0");
        return { thread, data: (await ask("raw", { view: "timeline", trace: state.file, query: words.toString(), version: about.version })) as unknown as Timeline };
      }),
    );
    return { list, lanes };
  }, [timeless(state), state.file, about.version]);
  const lanes = answer.value?.lanes ?? [];
  if (answer.error) return <Problem text={answer.error} />;
  if (answer.value && lanes.length === 0) return <Empty>{status.report ? "A report has no timelines of threads. Open the trace with heaptrack analyze." : "No threads."}</Empty>;
  return (
    <>
      <Lanes label="Live heap over time, a lane per thread" lanes={lanes.map(({ data }) => ({ data, values: data.live_bytes }))} />
      <div class="legend">
        {lanes.map(({ thread }, index) => (
          <button key={thread.index} type="button" class="legend-entry plain" title="Show only this thread" onClick={() => change({ thread: [thread.index] })}>
            <i style={{ background: PALETTE[index % PALETTE.length] }} />
            <span class="legend-name">{threadName(thread)}</span>
          </button>
        ))}
        {(answer.value?.list.length ?? 0) > lanes.length && <span class="legend-entry">and {(answer.value?.list.length ?? 0) - lanes.length} more</span>}
      </div>
    </>
  );
};

/** The lanes, one below the other. All have the same times. */
const Lanes = ({ label, lanes }: { label: string; lanes: { data: Timeline; values: number[] }[] }): JSX.Element => {
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(place);
  const height = Math.max(1, lanes.length) * LANE + 4;
  useEffect(() => {
    const node = canvas.current;
    if (!node || width === 0) return;
    const context = sharpen(node, width, height);
    if (!context) return;
    const pen = new CanvasPen(context);
    const colours = ink();
    lanes.forEach(({ data, values }, index) => {
      const bottom = (index + 1) * LANE;
      // Each lane has its own scale, which is written beside it, so that one that holds little is visible, too.
      const top = Math.max(1, ...values);
      const frame = { width, from: data.range.from_ns, to: data.range.to_ns };
      const times = [data.range.from_ns, ...data.time_ns];
      const points: Point[] = [[LEFT, bottom]];
      values.forEach((value, slice) => {
        const y = bottom - (value / top) * (LANE - 6);
        points.push([xOf(frame, times[slice] ?? 0), y], [xOf(frame, times[slice + 1] ?? 0), y]);
      });
      points.push([width - RIGHT, bottom]);
      pen.area(points, PALETTE[index % PALETTE.length] ?? "#888");
      pen.line(
        [
          [LEFT, bottom + 0.5],
          [width - RIGHT, bottom + 0.5],
        ],
        colours.line,
        1,
      );
      pen.text(bytes(Math.max(0, ...values)), LEFT - 8, bottom - 10, colours.faint, "right");
    });
  });
  return (
    <div ref={place} class="plot">
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} role="img" aria-label={label} />
    </div>
  );
};

type ProcessBand = { process?: number; pid?: number; name: string | null; live_bytes: number[] };

export const ProcessLanes = (): JSX.Element => {
  const { state, ask: about, status, trace } = usePage();
  const answer = useAnswer(async () => {
    if (status.report) return undefined;
    const words = new URLSearchParams(timeless(state));
    words.set("points", "256");
    words.set("top", String(MOST));
    words.set("by", "process");
    return (await ask("raw", { view: "timeline", trace: state.file, query: words.toString(), version: about.version })) as unknown as Timeline;
  }, [timeless(state), state.file, about.version]);
  const data = answer.value;
  const bands = (data?.bands ?? []) as unknown as ProcessBand[];
  const more = (trace.session?.processes ?? 0) - bands.length;
  if (answer.error) return <Problem text={answer.error} />;
  if (status.report) return <Empty>A report has no timelines of processes. Open the trace with heaptrack analyze.</Empty>;
  return (
    <>
      <Lanes label="Live heap over time, a lane per process" lanes={data ? bands.map((band) => ({ data, values: band.live_bytes })) : []} />
      <div class="legend">
        {bands.map((band, index) => (
          <button key={band.process ?? -1} type="button" class="legend-entry plain" title="Show only this process" onClick={() => band.process !== undefined && change({ process: [`#${band.process}`] })}>
            <i style={{ background: PALETTE[index % PALETTE.length] }} />
            <span class="legend-name">{processName(band)}</span>
          </button>
        ))}
        {more > 0 && state.process.length === 0 && <span class="legend-entry">and {more} more</span>}
      </div>
    </>
  );
};

/** The name of a process, and its pid. */
export const processName = ({ name, pid }: { name: string | null; pid?: number }): string => (name === null ? "unknown" : pid === undefined ? name : `${name} (${pid})`);
