// Draws stacked bands over time, with axes. It does not know where the numbers come from.
import { step } from "../units";
import { type Pen, type Point } from "./pen";

/** `key`: the function of the band (`functionName`), if it is one. */
export type Band = { name: string; colour: string; values: number[]; key?: string };
/** `times`: the line's own borders in time. Another trace may end earlier or later. */
export type Line = Band & { dash?: number[]; times?: number[] };
export type Drawing = {
  width: number;
  height: number;
  /** The borders of the slices in time: one more than values. */
  times: number[];
  from: number;
  to: number;
  bands: Band[];
  /** The total, drawn as a line. The bands may add up to less. */
  total: number[] | undefined;
  lines: Line[];
  /** True: a line in the colour of the paper separates neighbouring bands. */
  hasEdges?: boolean;
  log: boolean;
  /** True: a value stays constant until the next one (a rate). False: values are connected (a level, or a sum from the start). */
  stepped: boolean;
  format: (value: number) => string;
  /** A shorter form, for little space. */
  mark?: (value: number) => string;
  formatTime: (ns: number) => string;
  ink: { text: string; faint: string; line: string; paper: string };
};

export const LEFT = 64;
export const RIGHT = 14;
export const TOP = 10;
export const BOTTOM = 22;

export const xOf = (drawing: Pick<Drawing, "width" | "from" | "to">, time: number): number =>
  LEFT + ((time - drawing.from) / Math.max(1, drawing.to - drawing.from)) * (drawing.width - LEFT - RIGHT);
export const timeOf = (drawing: Pick<Drawing, "width" | "from" | "to">, x: number): number => {
  const share = (x - LEFT) / Math.max(1, drawing.width - LEFT - RIGHT);
  return drawing.from + Math.max(0, Math.min(1, share)) * (drawing.to - drawing.from);
};

/** The highest visible value. */
export const highest = (drawing: Drawing): number => {
  const { times, bands, total, lines, from, to } = drawing;
  let top = 0;
  for (let index = 0; index + 1 < times.length; index++) {
    if ((times[index + 1] ?? 0) < from || (times[index] ?? 0) > to) continue;
    const sum = bands.reduce((all, band) => all + (band.values[index] ?? 0), 0);
    top = Math.max(top, sum, total?.[index] ?? 0);
  }
  for (const line of lines) {
    const own = line.times ?? times;
    line.values.forEach((value, index) => {
      if ((own[index + 1] ?? 0) >= from && (own[index] ?? 0) <= to) top = Math.max(top, value);
    });
  }
  return top;
};

export const draw = (pen: Pen, drawing: Drawing): void => {
  const { width, height, ink } = drawing;
  const top = highest(drawing);
  const bottom = height - BOTTOM;
  const room = bottom - TOP;
  const least = 1;
  const y = (value: number): number => {
    if (!drawing.log) return bottom - (top > 0 ? value / top : 0) * room;
    const span = Math.log10(Math.max(10, top / least));
    return value <= least ? bottom : bottom - (Math.log10(value / least) / span) * room;
  };
  axes(pen, drawing, top, y);
  const below = drawing.times.slice(1).map(() => 0);
  for (const band of drawing.bands) {
    const lower = [...below];
    band.values.forEach((value, index) => {
      below[index] = (below[index] ?? 0) + value;
    });
    if (band.values.every((value) => value === 0)) continue;
    const up = outline(drawing, below, y);
    const down = outline(drawing, lower, y).reverse();
    pen.area([...up, ...down], band.colour);
    if (drawing.hasEdges) pen.line(up, ink.paper, 1);
  }
  if (drawing.total) pen.line(outline(drawing, drawing.total, y), ink.faint, 1);
  for (const line of drawing.lines) {
    const points = outline(drawing, line.values, y, line.times);
    // Dashes are visible on any band if the gaps have the colour of the paper.
    if (line.dash) pen.line(points, ink.paper, 3.5);
    pen.line(points, line.colour, line.dash ? 2 : 1.5, line.dash);
  }
  // If the chart is zoomed in, parts of bands and lines were drawn outside of the plot. They are covered here.
  pen.rect(0, 0, LEFT, height, ink.paper);
  pen.rect(width - RIGHT, 0, RIGHT, height, ink.paper);
  labels(pen, drawing, top, y);
};

const outline = (drawing: Drawing, values: number[], y: (value: number) => number, times = drawing.times): Point[] => {
  const points: Point[] = [];
  const { stepped } = drawing;
  for (let index = 0; index < values.length; index++) {
    const height = y(values[index] ?? 0);
    const left = xOf(drawing, times[index] ?? 0);
    const right = xOf(drawing, times[index + 1] ?? 0);
    if (stepped) points.push([left, height], [right, height]);
    else {
      if (index === 0) points.push([left, height]);
      points.push([(left + right) / 2, height]);
      if (index + 1 === values.length) points.push([right, height]);
    }
  }
  return points;
};

const marks = (drawing: Drawing, top: number): number[] => {
  if (drawing.log) {
    const list: number[] = [];
    for (let mark = 1; mark <= top; mark *= 10) list.push(mark);
    const every = Math.ceil(list.length / 5);
    return list.filter((_, index) => index % every === 0);
  }
  const size = step(top, 4);
  const list: number[] = [];
  for (let mark = 0; mark <= top * 1.001; mark += size) list.push(mark);
  return list;
};

const axes = (pen: Pen, drawing: Drawing, top: number, y: (value: number) => number): void => {
  for (const mark of marks(drawing, top)) {
    const height = Math.round(y(mark)) + 0.5;
    pen.line(
      [
        [LEFT, height],
        [drawing.width - RIGHT, height],
      ],
      drawing.ink.line,
      1,
    );
  }
};

const labels = (pen: Pen, drawing: Drawing, top: number, y: (value: number) => number): void => {
  const { width, height, from, to, ink } = drawing;
  let last = Number.POSITIVE_INFINITY;
  for (const mark of marks(drawing, top)) {
    const place = y(mark);
    if (last - place < 14) continue;
    last = place;
    pen.text((drawing.mark ?? drawing.format)(mark), LEFT - 8, place, ink.faint, "right");
  }
  const size = step(to - from, Math.max(2, width / 150));
  for (let mark = Math.ceil(from / size) * size; mark <= to; mark += size) {
    const place = xOf(drawing, mark);
    if (place > width - RIGHT - 4) break;
    pen.text(drawing.formatTime(mark), Math.max(LEFT + 2, place), height - 9, ink.faint, place < LEFT + 20 ? "left" : "center");
  }
};

/** The value of a line at this time. Undefined if the line has ended. */
export const valueAt = (drawing: Pick<Drawing, "times">, line: Line, time: number): number | undefined => {
  const times = line.times ?? drawing.times;
  return time > (times[times.length - 1] ?? 0) ? undefined : line.values[indexAt(times, time)];
};

/** The index of the value at this time. */
export const indexAt = (times: number[], time: number): number => {
  let low = 0;
  let high = times.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((times[middle] ?? 0) <= time) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
};
