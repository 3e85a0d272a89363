// A source file, with the costs of its lines in the margin.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { COSTS, type Cost, FLAMES, drawable, knows, name } from "../costs";
import { base } from "../names";
import { change } from "../store";
import { percent, show } from "../units";
import { usePage } from "./context";
import { useRaw } from "./raw";
import { EditorLink } from "./editor";
import { Empty, NotCompared, Pick, Problem, WholeOnly } from "./parts";

type Sums = Record<string, number>;
type Line = { line: number; inclusive: Sums; self: Sums };
type File = { file: string; lines: Line[] };

/** In a long file, only lines with costs and this many lines around them are shown. */
const AROUND = 8;
const LONG = 1500;

const amount = (sums: Sums | undefined, cost: Cost): number => (cost === "leaked_bytes" ? (sums?.leaked_bytes ?? sums?.live_bytes ?? 0) : (sums?.[cost] ?? 0));

export const SourceView = (): JSX.Element => {
  const { state, ask, mode: asked, cost: wanted, status } = usePage();
  const mode = status.report ? "session" : asked;
  const cost = drawable(wanted, mode);
  const answer = useRaw("source", ask.query);
  const files = (answer.value?.files as File[] | undefined) ?? [];
  const ranked = useMemo(() => {
    const sum = (file: File): number => file.lines.reduce((all, line) => all + amount(line.self, cost), 0);
    const reach = (file: File): number => Math.max(0, ...file.lines.map((line) => amount(line.inclusive, cost)));
    return files.map((file) => ({ file, self: sum(file), reach: reach(file) })).sort((a, b) => b.self - a.self || b.reach - a.reach);
  }, [answer.value, cost]);
  // The user's own file with the highest cost is more useful than the allocator of a library.
  const own = ranked.find(({ file }) => !/^\/usr\/(include|lib|src)|\/rustc\/|\.cargo\/registry/.test(file.file));
  const chosen = state.src !== undefined ? files.find((file) => file.file === state.src) : (own ?? ranked[0])?.file;
  const text = useRaw(chosen && "source-text", new URLSearchParams({ file: chosen?.file ?? "" }).toString());
  const max = Math.max(1, ...(chosen?.lines.map((line) => amount(line.inclusive, cost)) ?? []));
  const { kind } = COSTS[cost];
  return (
    <section class="view source" aria-label="Source">
      <div class="tools">
        <label class="pick wide">
          <span>file</span>
          <select value={chosen?.file ?? ""} onChange={(event) => change({ src: event.currentTarget.value, line: undefined })}>
            {ranked.slice(0, 500).map(({ file, self }) => (
              <option key={file.file} value={file.file}>
                {`${base(file.file)}  ${self > 0 ? show(self, kind) : ""}  ${file.file}`}
              </option>
            ))}
          </select>
        </label>
        <Pick label="cost" value={cost} choices={FLAMES[mode].filter(knows).map((one) => ({ value: one, text: name(one, mode) }))} onChange={(next) => change({ cost: next })} />
        {chosen && <EditorLink file={chosen.file} line={state.line ?? 1} />}
      </div>
      <NotCompared />
      <WholeOnly what="costs of lines" />
      {answer.error && <Problem text={answer.error} />}
      {answer.value && files.length === 0 && <Empty>The source lines are not known. Build the program with -g, or run heaptrack symbolize with --debug-path.</Empty>}
      {chosen && (
        <>
          <p class="hint source-path">{chosen.file}</p>
          {text.error && <Problem text={`${text.error} Costs of its lines are below.`} />}
          <Listing file={chosen} text={text.value?.file === chosen.file ? String(text.value?.text ?? "") : undefined} cost={cost} max={max} wanted={state.line} />
        </>
      )}
    </section>
  );
};

const Listing = ({ file, text, cost, max, wanted }: { file: File; text: string | undefined; cost: Cost; max: number; wanted: number | undefined }): JSX.Element => {
  const { mode } = usePage();
  const target = useRef<HTMLTableRowElement>(null);
  const { kind } = COSTS[cost];
  const costs = useMemo(() => new Map(file.lines.map((line) => [line.line, line])), [file]);
  const hottest = useMemo(() => file.lines.reduce<Line | undefined>((best, line) => (amount(line.inclusive, cost) > amount(best?.inclusive, cost) ? line : best), undefined)?.line, [file, cost]);
  const lines = useMemo(() => text?.split("\n"), [text]);
  const shown = useMemo(() => {
    if (!lines) return [...costs.keys()].sort((a, b) => a - b);
    if (lines.length <= LONG) return lines.map((_, index) => index + 1);
    const near = new Set<number>();
    for (const line of [...costs.keys(), wanted ?? 0]) for (let at = line - AROUND; at <= line + AROUND; at++) if (at >= 1 && at <= lines.length) near.add(at);
    return [...near].sort((a, b) => a - b);
  }, [lines, costs, wanted]);
  useEffect(() => {
    const row = target.current;
    const box = row?.closest<HTMLElement>(".listing");
    // Only the listing scrolls, not the page with it.
    if (row && box) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, [wanted, file.file, text === undefined]);
  let last = 0;
  return (
    <div class="listing" tabIndex={0} role="region" aria-label={`Source of ${base(file.file)}`}>
      <table>
        <thead>
          <tr>
            <th class="number">{name(cost, mode)}</th>
            <th class="number">Self</th>
            <th class="number">Line</th>
            <th>Source</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((number) => {
            const entry = costs.get(number);
            const total = amount(entry?.inclusive, cost);
            const self = amount(entry?.self, cost);
            const isGap = number > last + 1 && last > 0;
            last = number;
            return (
              <tr key={number} ref={number === (wanted ?? hottest) ? target : undefined} class={`${number === wanted ? "wanted" : ""}${isGap ? " gap" : ""}`}>
                <td class="number" title={total > 0 ? percent(total / max) : undefined} data-line={number} data-number={`line ${cost}`} data-value={total}>
                  {total > 0 && <span class="heat" style={{ width: `${(total / max) * 100}%` }} />}
                  <span class="cell-text">{total > 0 ? show(total, kind) : ""}</span>
                </td>
                <td class="number" data-line={number} data-number={`line self ${cost}`} data-value={self}>
                  {self > 0 ? show(self, kind) : ""}
                </td>
                <td class="number line-number">{number}</td>
                <td>
                  <pre>{lines?.[number - 1] ?? ""}</pre>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
};
