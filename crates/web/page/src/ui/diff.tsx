// What changed: every function before and after.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { COSTS, FLAMES, name, value } from "../costs";
import { labelOf, where } from "../names";
import { change, useAsk } from "../store";
import { percent, show, signed } from "../units";
import type { Row } from "../work/protocol";
import { usePage } from "./context";
import { nameKey } from "./figures";
import { type Column, Grid } from "./grid";
import { Choices, Pick, Problem } from "./parts";

type Kind = "all" | "more" | "less" | "new" | "gone";

export const DiffTable = (): JSX.Element => {
  const { state, ask, look, mode, cost, pick } = usePage();
  const [which, setWhich] = useState<Kind>("all");
  const answer = useAsk("diff", { ask, look, cost });
  const { kind } = COSTS[cost];
  const now = (row: Row): number => value(row.sums, cost);
  const before = (row: Row): number => (row.base ? value(row.base, cost) : 0);
  const stateOf = (row: Row): Exclude<Kind, "all"> => (before(row) === 0 ? "new" : now(row) === 0 ? "gone" : now(row) > before(row) ? "more" : "less");
  const rows = useMemo(() => (answer.value?.rows ?? []).filter((row) => which === "all" || stateOf(row) === which), [answer.value, which, cost]);
  const most = Math.max(1, ...rows.map((row) => Math.abs(now(row) - before(row))));
  const columns: Column<Row>[] = [
    {
      id: "name",
      title: "Function (what it allocates itself)",
      help: "Functions match by name, whatever their file's path or line",
      width: 320,
      cell: (row) => (
        <span class="tree-cell" title={labelOf(row.level, look.merge, true)}>
          <span class={`owner ${row.level.class ?? "none"}`} aria-hidden="true" />
          <span class="tree-name">{labelOf(row.level, look.merge, state.full)}</span>
          <span class="place">{where(row.level)}</span>
        </span>
      ),
      text: (row) => labelOf(row.level, look.merge, true),
    },
    { id: "before", title: "Before", help: "In the base", width: 120, numeric: true, cell: (row) => show(before(row), kind), text: (row) => String(before(row)) },
    { id: "after", title: "After", help: "Here", width: 120, numeric: true, cell: (row) => show(now(row), kind), text: (row) => String(now(row)) },
    { id: "delta", title: "Change", help: "After minus before", width: 140, numeric: true, cell: (row) => signed(now(row) - before(row), kind), text: (row) => String(now(row) - before(row)), bar: (row) => (now(row) - before(row)) / most },
    { id: "percent", title: "%", help: "Of before", width: 90, numeric: true, cell: (row) => (before(row) === 0 ? <b class="badge warn">new</b> : now(row) === 0 ? <b class="badge">gone</b> : signedPercent((now(row) - before(row)) / before(row))), text: (row) => stateOf(row) },
  ];
  return (
    <section class="card diff" aria-label="What changed" style={{ "--tall": `${Math.min(340, Math.max(90, rows.length * 26 + 44))}px` }}>
      <header class="card-head">
        <h2>What changed</h2>
        <span class="hint">{name(cost, mode)} of each function itself</span>
        <span class="push" />
        <Pick label="cost" value={cost} choices={FLAMES[mode].map((one) => ({ value: one, text: name(one, mode) }))} onChange={(next) => change({ cost: next })} />
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
      <Grid label="Changes by function" name="diff" columns={columns} count={rows.length} rows={(from, to) => rows.slice(from, to)} version={rows} idOf={(row) => String(row.key)} onSelect={(row) => pick({ title: labelOf(row.level, look.merge, true), row, selection: { of: "function", key: row.key } })} onOpen={(row) => change({ view: "callers", fn: nameKey(row) })} empty={answer.busy ? "Computing…" : `No function changed in ${name(cost, mode).toLowerCase()}: choose another cost above.`} />
    </section>
  );
};

const signedPercent = (share: number): string => (share > 0 ? `+${percent(share)}` : percent(share));
