// What changed: the costs of every function before and after, in one run or in several.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { COSTS, FLAMES, type Kind as CostKind, type Mode, drawable, knows, name } from "../costs";
import { labelOf, placeOf } from "../names";
import { comparedRuns, isOtherTrace } from "../state";
import { change, useAsk } from "../store";
import { percent, show, signed } from "../units";
import type { Change, Elsewhere, Measure } from "../work/protocol";
import { NORMALS, Scale } from "./compare";
import { askOf, traceName, usePage } from "./context";
import { nameKey } from "./figures";
import { type Column, ListGrid } from "./grid";
import { Choices, Pick, Problem } from "./parts";

type Kind = "all" | "more" | "less" | "new" | "gone";

const mean = ({ after }: Change): number => after.reduce((sum, amount) => sum + amount, 0) / after.length;
const delta = (row: Change): number => mean(row) - row.before;
const kindOf = (row: Change): Exclude<Kind, "all"> => (row.before === 0 ? "new" : mean(row) === 0 ? "gone" : delta(row) > 0 ? "more" : "less");
const signedPercent = (share: number): string => (share > 0 ? `+${percent(share)}` : percent(share));

/** Whether all runs changed in the same direction. */
const agree = ({ before, after }: Change): boolean => new Set(after.map((amount) => Math.sign(amount - before))).size === 1;

const Verdict = ({ row }: { row: Change }): JSX.Element => {
  const kind = kindOf(row);
  if (kind === "new") return <b class="badge warn">new</b>;
  if (kind === "gone") return <b class="badge">gone</b>;
  return <>{signedPercent(delta(row) / row.before)}</>;
};

const columnsOf = (names: string[], tell: (amount: number) => string, most: number, full: boolean, merge: Parameters<typeof labelOf>[1]): Column<Change>[] => {
  const signed = (amount: number): string => (amount > 0 ? `+${tell(amount)}` : tell(amount));
  const isOne = names.length === 1;
  return [
    {
      id: "name",
      title: "Function (self)",
      help: "Costs of what the function allocates itself. Functions match by name and file, whatever their folder or line",
      width: 320,
      cell: (row) => (
        <span class="tree-cell" title={labelOf(row.level, merge, true)}>
          <span class={`owner ${row.level.class ?? "none"}`} aria-hidden="true" />
          <span class="tree-name">{labelOf(row.level, merge, full)}</span>
          <span class="place">{placeOf(row.level, merge)}</span>
        </span>
      ),
      text: (row) => labelOf(row.level, merge, true),
    },
    { id: "before", title: "Before", help: "In the base", width: 120, numeric: true, cell: (row) => tell(row.before), text: (row) => String(row.before) },
    ...names.map(
      (run, index): Column<Change> => ({
        id: isOne ? "after" : `after ${index}`,
        title: isOne ? "After" : run,
        help: isOne ? "Here" : `In ${run}`,
        width: isOne ? 120 : Math.max(120, run.length * 8 + 26),
        numeric: true,
        cell: (row) => tell(row.after[index] ?? 0),
        text: (row) => String(row.after[index] ?? 0),
      }),
    ),
    {
      id: "delta",
      title: isOne ? "Change" : "Mean change",
      help: isOne ? "After minus before" : "Mean of all runs minus before",
      width: 140,
      numeric: true,
      cell: (row) => signed(delta(row)),
      text: (row) => String(delta(row)),
      bar: (row) => delta(row) / most,
    },
    { id: "percent", title: "%", help: "Of before", width: 90, numeric: true, cell: (row) => <Verdict row={row} />, text: kindOf },
    ...(isOne
      ? []
      : [
          {
            id: "agree",
            title: "Runs agree",
            help: "Yes: all runs changed in the same direction. No: the change is not larger than the usual difference between runs",
            width: 110,
            cell: (row: Change) => (agree(row) ? "yes" : <b class="badge">no</b>),
            text: (row: Change) => (agree(row) ? "yes" : "no"),
          },
        ]),
  ];
};

export const DiffTable = (): JSX.Element => {
  const { state, status, ask, look, mode, pick } = usePage();
  const cost = drawable(state.cost, mode);
  const [which, setWhich] = useState<Kind>("all");
  const isFile = isOtherTrace(state.compare);
  const runs = comparedRuns(state);
  const normal = isFile && state.normalise !== "no" ? state.normalise : undefined;
  const asks = [ask, ...runs.map((trace) => askOf(state, status, trace))];
  const answer = useAsk("diff", { asks, look, cost, normal });
  const rows = useMemo(() => (answer.value ?? []).filter((row) => which === "all" || kindOf(row) === which), [answer.value, which]);
  const most = Math.max(...rows.map((row) => Math.abs(delta(row))), Number.MIN_VALUE);
  const kind: CostKind = normal === "share" ? "ratio" : COSTS[cost].kind;
  const tell = (amount: number): string => (normal === "second" ? `${show(amount, kind)}/s` : show(amount, kind));
  const columns = columnsOf([state.file, ...runs].map((trace) => traceName(status, trace)), tell, most, state.full, look.merge);
  return (
    <section class="card diff" aria-label="What changed" style={{ "--tall": `${Math.min(340, Math.max(90, rows.length * 26 + 44))}px` }}>
      <header class="card-head">
        <h2>What changed</h2>
        <span class="hint">
          {isFile && `${traceName(status, Number(state.compare))} → ${traceName(status, state.file)} · `}
          {name(cost, mode)} per function (self){normal && `, ${NORMALS[normal].told}`}
        </span>
        <span class="push" />
        {isFile && <Scale />}
        <Pick label="cost" value={cost} choices={FLAMES[mode].filter(knows).map((one) => ({ value: one, text: name(one, mode) }))} onChange={(next) => change({ cost: next })} />
        <Choices
          label="Which changes"
          value={which}
          choices={[
            { value: "all", text: "all" },
            { value: "more", text: "more" },
            { value: "less", text: "less" },
            { value: "new", text: "new" },
            { value: "gone", text: "gone" },
          ]}
          onChange={setWhich}
        />
      </header>
      {answer.error && <Problem text={answer.error} />}
      <ListGrid
        label="Changes by function"
        name={runs.length > 0 ? "runs" : "diff"}
        columns={columns}
        list={rows}
        version={rows}
        idOf={(row) => row.name}
        onSelect={({ level, row }) => row && pick({ title: `${labelOf(level, look.merge, true)}, what it allocates itself`, level, selection: { of: "self", key: row.key } })}
        onOpen={(row) => change({ view: "callers", fn: nameKey(row, state) })}
        empty={answer.busy ? "Computing…" : `No function changed in ${name(cost, mode).toLowerCase()}: choose another cost above.`}
      />
      {isFile && normal === undefined && <ElsewhereTable />}
    </section>
  );
};

const MEASURES: Record<Mode, Measure[]> = {
  session: ["peak_bytes", "own_peak", "leaked_bytes", "allocations", "temporary", "allocated_bytes"],
  range: ["peak_bytes", "own_peak", "live_bytes", "allocations", "temporary", "allocated_bytes"],
  moment: ["live_bytes", "live_allocations"],
};
const measureName = (measure: Measure, mode: Mode): string => (measure === "own_peak" ? "Own peak" : name(measure, mode));
const kindOfMeasure = (measure: Measure): CostKind => (measure === "own_peak" ? "bytes" : COSTS[measure].kind);

/** Changes that the table above cannot show. A function that holds memory only while the process is not at its peak, for example, has no share of the peak. */
const ElsewhereTable = (): JSX.Element | null => {
  const { state, ask, look, mode, pick } = usePage();
  const cost = drawable(state.cost, mode);
  const answer = useAsk("elsewhere", { ask, look, cost, measures: MEASURES[mode].filter((measure) => measure !== cost) });
  const rows = answer.value ?? [];
  if (rows.length === 0) return null;
  const columns: Column<Elsewhere>[] = [
    {
      id: "name",
      title: `Unchanged in ${name(cost, mode).toLowerCase()}, changed in`,
      help: "Functions that did not change in the cost above, each with the measure in which it changed most",
      width: 320,
      cell: (row) => (
        <span class="tree-cell" title={labelOf(row.level, look.merge, true)}>
          <span class={`owner ${row.level.class ?? "none"}`} aria-hidden="true" />
          <span class="tree-name">{labelOf(row.level, look.merge, state.full)}</span>
          <span class="place">{placeOf(row.level, look.merge)}</span>
        </span>
      ),
      text: (row) => labelOf(row.level, look.merge, true),
    },
    { id: "measure", title: "Measure", help: "Own peak: the most that a single stack of it held at any time", width: 140, cell: (row) => measureName(row.measure, mode), text: (row) => row.measure },
    { id: "before", title: "Before", help: "In the base", width: 120, numeric: true, cell: (row) => show(row.before, kindOfMeasure(row.measure)), text: (row) => String(row.before) },
    { id: "after", title: "After", help: "Here", width: 120, numeric: true, cell: (row) => show(row.after, kindOfMeasure(row.measure)), text: (row) => String(row.after) },
    { id: "delta", title: "Change", help: "After minus before", width: 140, numeric: true, cell: (row) => signed(row.after - row.before, kindOfMeasure(row.measure)), text: (row) => String(row.after - row.before) },
  ];
  return (
    <div style={{ "--tall": `${Math.min(220, Math.max(90, rows.length * 26 + 44))}px` }}>
      <ListGrid
        label="Changes in other measures"
        name="elsewhere"
        columns={columns}
        list={rows}
        version={rows}
        idOf={(row) => row.name}
        onSelect={({ level, row }) => pick({ title: `${labelOf(level, look.merge, true)}, what it allocates itself`, level, selection: { of: "self", key: row.key } })}
        onOpen={(row) => change({ view: "callers", fn: nameKey(row, state) })}
      />
    </div>
  );
};
