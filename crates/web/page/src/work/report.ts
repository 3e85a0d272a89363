// Answers from a report, which is one file without a server.
//
// Receives: the answers for the whole session, and for each slice of time the stacks that changed in it. Returns: for every range that begins and ends at
// borders of slices, the same costs as a server, but without kept blocks and own peaks. Other ranges are moved to the nearest borders, at least one slice
// apart, and the answer's `range` says so. Must hold: there is no replay here, only sums of the engine's counts.
import type { Answer, Source } from "./source";
import { Refusal } from "./source";

/** Row r belongs to slice s if `start[s] <= r < start[s + 1]`. `live_*` and `peak_*` are values, the others are sums within the slice. */
export type Slices = {
  /** Only with `--max-size`: the costs from the start of the session to the border with the number `border`. The oldest events are stored as sums, which are in no
   * slice. `border` is the first border after them. A range that begins at the start and ends at `border` or later counts these costs instead of the slices before
   * `border`. Any other range leaves the sums out. */
  folded: ({ border: number; highest: number; highest_ns: number; stack: number[] } & Record<(typeof SUMMED)[number] | (typeof STATES)[number], number[]>) | null;
  /** The times of the borders of slices. There is one more border than slices. */
  time_ns: number[];
  /** The most bytes that were live in each slice, and the time at which they were. */
  highest: number[];
  highest_ns: number[];
  start: number[];
  stack: number[];
} & Record<(typeof SUMMED)[number] | (typeof STATES)[number], number[]>;

type Counted = { answers: Record<string, Answer>; slices: Slices };

export type ReportData = Counted & {
  status: Answer;
  /** Texts of source files, by path. */
  sources: Record<string, string>;
  /** Blocks that the program's own allocators reported. Null if there are none. */
  custom: (Counted & { trace: Answer }) | null;
};

const SUMMED = ["allocations", "allocated_bytes", "deallocations", "freed_bytes", "temporary", "temporary_bytes", "lifetime_ns"] as const;
const STATES = ["live_bytes", "live_allocations", "peak_bytes", "peak_allocations"] as const;

export class Report implements Source {
  readonly isReport = true;

  constructor(private readonly data: ReportData) {}

  async get(view: string, _trace: number, query: string): Promise<Answer> {
    const words = new URLSearchParams(query);
    const isCustom = words.get("domain") === "custom" && this.data.custom !== null;
    if (view === "status") return isCustom ? { ...this.data.status, traces: [this.data.custom?.trace] } : this.data.status;
    if (isCustom && this.data.custom) {
      words.delete("domain");
      return new Report({ ...this.data, ...this.data.custom, custom: null }).get(view, 0, words.toString());
    }
    if (view === "source-text") return this.text(words.get("file") ?? "");
    for (const name of ["thread", "process", "allocator", "size", "lifetime"]) {
      if (words.has(name)) throw new Refusal(`A report cannot be filtered by ${name}: open the trace with \`heaptrack analyze\`.`);
    }
    if (view === "profile") return this.profile(words);
    const cost = words.get("cost");
    const answer = this.data.answers[view === "timeline" && cost ? `timeline ${cost}` : view];
    if (!answer) throw new Refusal(`This report has no ${view}: open the trace with \`heaptrack analyze\`.`);
    return view === "memory" && words.has("at") ? measuredAt(answer, this.time(words.get("at") ?? "")) : answer;
  }

  async suppress(): Promise<Answer> {
    throw new Refusal("A report cannot use more suppressions: open the trace with `heaptrack analyze`.");
  }

  private text(file: string): Answer {
    const text = this.data.sources[file];
    if (text === undefined) throw new Refusal(`The text of ${file} is not in this report.`);
    return { file, text };
  }

  private profile(words: URLSearchParams): Answer {
    const number = (name: string): number | undefined => (words.has(name) ? this.time(words.get(name) ?? "") : undefined);
    const compare = words.get("compare");
    const whole = this.data.answers.profile ?? {};
    let now: Answer;
    if (words.get("at") === "peak") now = this.peak();
    else if (words.has("at")) now = this.moment(this.border(number("at") ?? 0));
    else if (words.has("from") || words.has("to")) now = this.range(...this.borders(number("from"), number("to")));
    else now = whole;
    if (compare?.startsWith("@")) {
      const base = compare === "@peak" ? this.peak() : this.moment(this.border(this.time(compare.slice(1))));
      return { ...now, base: base.columns ?? base };
    }
    return now;
  }

  private time(word: string): number {
    return word === "peak" ? ((this.data.answers.profile?.totals as Record<string, number> | undefined)?.peak_time_ns ?? 0) : Number(word);
  }

  /** The peak is known exactly, although it is not at a border. */
  private peak(): Answer {
    const whole = (this.data.answers.profile ?? {}) as unknown as Record<string, number[]>;
    const columns = new Columns();
    whole.stack?.forEach((stack, index) => {
      if ((whole.peak_allocations?.[index] ?? 0) === 0) return;
      columns.set(stack, "live_bytes", whole.peak_bytes?.[index] ?? 0);
      columns.set(stack, "live_allocations", whole.peak_allocations?.[index] ?? 0);
    });
    const time = this.time("peak");
    return { ...columns.answer(), range: { from_ns: time, to_ns: time } };
  }

  /** The index of the border that is nearest to this time. */
  private border(time: number): number {
    const { time_ns } = this.data.slices;
    let best = 0;
    time_ns.forEach((border, index) => {
      if (Math.abs(border - time) < Math.abs((time_ns[best] ?? 0) - time)) best = index;
    });
    return best;
  }

  /** The borders of a range. A range that is too short for two borders becomes the slice in which it begins. */
  private borders(from: number | undefined, to: number | undefined): [number, number] {
    const { time_ns } = this.data.slices;
    const count = time_ns.length - 1;
    const [first, last] = [from === undefined ? 0 : this.border(from), to === undefined ? count : this.border(to)];
    if (first < last) return [first, last];
    const slice = time_ns.findLastIndex((border) => border <= (from ?? 0));
    const begin = Math.max(0, Math.min(slice, count - 1));
    return [begin, begin + 1];
  }

  /** The live bytes and blocks of each stack at a border. */
  private live(border: number): Map<number, [number, number]> {
    const { start, stack, live_bytes, live_allocations } = this.data.slices;
    const live = new Map<number, [number, number]>();
    const end = start[border] ?? 0;
    for (let row = 0; row < end; row++) live.set(stack[row] ?? 0, [live_bytes[row] ?? 0, live_allocations[row] ?? 0]);
    return live;
  }

  private moment(border: number): Answer {
    const columns = new Columns();
    for (const [stack, [bytes, blocks]] of this.live(border)) {
      if (blocks === 0) continue;
      columns.set(stack, "live_bytes", bytes);
      columns.set(stack, "live_allocations", blocks);
    }
    const time = this.data.slices.time_ns[border] ?? 0;
    return { ...columns.answer(), range: { from_ns: time, to_ns: time } };
  }

  private range(first: number, last: number): Answer {
    const { slices } = this.data;
    const columns = new Columns();
    const base = this.live(first);
    for (const [stack, [bytes, blocks]] of base) {
      if (blocks === 0) continue;
      columns.set(stack, "base_bytes", bytes);
      columns.set(stack, "base_allocations", blocks);
    }
    const folded = first === 0 && slices.folded && slices.folded.border <= last ? slices.folded : undefined;
    const begin = folded ? folded.border : first;
    folded?.stack.forEach((stack, row) => {
      for (const name of SUMMED) columns.add(stack, name, folded[name][row] ?? 0);
    });
    let top = begin;
    for (let slice = begin; slice < last; slice++) if ((slices.highest[slice] ?? 0) > (slices.highest[top] ?? 0)) top = slice;
    for (let row = slices.start[begin] ?? 0; row < (slices.start[last] ?? 0); row++) {
      const stack = slices.stack[row] ?? 0;
      for (const name of SUMMED) columns.add(stack, name, slices[name][row] ?? 0);
    }
    for (const [stack, [bytes, blocks]] of this.live(last)) {
      columns.set(stack, "live_bytes", bytes);
      columns.set(stack, "live_allocations", blocks);
    }
    const isFoldedPeak = folded !== undefined && (begin === last || folded.highest >= (slices.highest[top] ?? 0));
    for (const [stack, [bytes, blocks]] of isFoldedPeak ? peakOf(folded) : this.held(top)) {
      columns.set(stack, "peak_bytes", bytes);
      columns.set(stack, "peak_allocations", blocks);
    }
    const answer = columns.answer();
    (answer.totals as Record<string, number>).peak_time_ns = (isFoldedPeak ? folded.highest_ns : slices.highest_ns[top]) ?? 0;
    return { ...answer, range: { from_ns: slices.time_ns[first] ?? 0, to_ns: slices.time_ns[last] ?? 0 } };
  }

  /** What each stack held at the highest moment of a slice. A stack that did not change in the slice held the same as before. */
  private held(top: number): Map<number, [number, number]> {
    const { slices } = this.data;
    const held = this.live(top);
    for (let row = slices.start[top] ?? 0; row < (slices.start[top + 1] ?? 0); row++) {
      held.set(slices.stack[row] ?? 0, [slices.peak_bytes[row] ?? 0, slices.peak_allocations[row] ?? 0]);
    }
    return held;
  }
}

const peakOf = ({ stack, peak_bytes, peak_allocations }: NonNullable<Slices["folded"]>): Map<number, [number, number]> =>
  new Map(stack.map((one, row) => [one, [peak_bytes[row] ?? 0, peak_allocations[row] ?? 0]]));

/** The last instant up to this time at which the parts of the memory were measured. */
const measuredAt = (answer: Answer, time: number): Answer => ({ ...answer, instants: (answer.instants as { time_ns: number }[]).filter((instant) => instant.time_ns <= time).slice(-1) });

class Columns {
  private readonly places = new Map<number, number>();
  private readonly columns = new Map<string, number[]>();

  private slot(stack: number, name: string): [number[], number] {
    let place = this.places.get(stack);
    if (place === undefined) {
      place = this.places.size;
      this.places.set(stack, place);
    }
    let column = this.columns.get(name);
    if (!column) {
      column = [];
      this.columns.set(name, column);
    }
    return [column, place];
  }

  set(stack: number, name: string, amount: number): void {
    const [column, place] = this.slot(stack, name);
    column[place] = amount;
  }

  add(stack: number, name: string, amount: number): void {
    const [column, place] = this.slot(stack, name);
    column[place] = (column[place] ?? 0) + amount;
  }

  answer(): Answer {
    const rows = [...this.places].filter(([, place]) => [...this.columns.values()].some((column) => (column[place] ?? 0) !== 0));
    const result: Record<string, number[]> = { stack: rows.map(([stack]) => stack) };
    const totals: Record<string, number> = {};
    for (const [name, column] of this.columns) {
      const filled = rows.map(([, place]) => column[place] ?? 0);
      result[name] = filled;
      totals[name] = filled.reduce((sum, amount) => sum + amount, 0);
    }
    return { ...result, totals };
  }
}
