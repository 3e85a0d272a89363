// The columns of costs in tables: which are shown, and in which order.
import type { JSX } from "preact";
import { COLUMNS, COSTS, type Cost, type Mode, SHOWN, help, isKnown, isPart, knows, largest, name, value } from "../costs";
import { labelOf, placeOf } from "../names";
import { recall, remember } from "../store";
import { percent, show, signed } from "../units";
import type { Row, Totals } from "../work/protocol";
import type { Look } from "../work/stacks";
import type { Column } from "./grid";
import { Marked, Menu } from "./parts";

/** The name of a level and its place in the source. What is searched for is marked. */
export const LevelName = ({ level, merge, full, search }: { level: Row["level"]; merge: Look["merge"]; full: boolean; search: string }): JSX.Element => (
  <>
    <span class={`owner ${level.class ?? "none"}`} aria-hidden="true" />
    <span class="tree-name">
      <Marked text={labelOf(level, merge, full)} search={search} />
    </span>
    <span class="place">{placeOf(level, merge)}</span>
  </>
);

export type Shape = Partial<Record<Mode, Cost[]>>;

/**
 * The costs that tables can have columns for. In a report they are without kept blocks, because its slices do not tell which blocks of a range are live at its end.
 */
export const known = (mode: Mode, isReport: boolean): Cost[] => COLUMNS[mode].filter((cost) => knows(cost) && !(isReport && mode === "range" && cost.startsWith("kept")));

export const shown = (shape: Shape, mode: Mode, isReport: boolean): Cost[] => (shape[mode] ?? SHOWN[mode]).filter((cost) => known(mode, isReport).includes(cost));

type Options = { mode: Mode; totals: Totals | undefined; self?: boolean; prefix?: string };

const title = (cost: Cost, mode: Mode, prefix: string | undefined, self: boolean | undefined): string => `${prefix ?? ""}${name(cost, mode)}${self ? " (self)" : ""}`;

/** A column of numbers, each with its share of the total as a bar. In a comparison, the numbers are differences, except in columns of self costs. */
export const costColumn = (cost: Cost, { mode, totals, self, prefix }: Options): Column<Row> => {
  const { kind } = COSTS[cost];
  const most = totals ? largest(cost, totals.sums, totals.base) : 0;
  const isShare = isPart(cost);
  const hasBar = isShare || cost === "growth_bytes";
  const sumsOf = (row: Row): Float64Array => (self ? (row.self ?? row.sums) : row.sums);
  const of = (row: Row): number => value(sumsOf(row), cost);
  const change = (row: Row): number => of(row) - (row.base ? value(row.base, cost) : 0);
  const isDiff = (row: Row): boolean => row.base !== undefined && !self;
  const isThere = (row: Row): boolean => isKnown(sumsOf(row), cost) && (!isDiff(row) || isKnown(row.base ?? [], cost));
  // Wide enough for the widest number and its share.
  const letters = (totals?.base ? signed(most, kind) : show(most, kind)).length + (isShare ? 8 : 0);
  return {
    id: self ? `self ${cost}` : cost,
    title: title(cost, mode, prefix, self),
    help: help(cost, mode) + (self ? " Only what the function allocates itself, not what the functions that it calls allocate." : ""),
    width: Math.max(kind === "bytes" ? 124 : 128, title(cost, mode, prefix, self).length * 8 + 40, letters * 8 + 20),
    numeric: true,
    bar: (row) => (!hasBar || most === 0 ? 0 : (isDiff(row) ? change(row) : of(row)) / most),
    cell: (row) => {
      const amount = isDiff(row) ? change(row) : of(row);
      if (!isThere(row)) return <span class="zero">–</span>;
      // A mean life of 0 means that it is too short to measure.
      if (amount === 0 && kind !== "time") return <span class="zero">{kind === "count" ? "0" : "–"}</span>;
      return (
        <>
          {isDiff(row) ? signed(amount, kind) : show(amount, kind)}
          {isShare && most > 0 && <span class="share">{percent(amount / most)}</span>}
        </>
      );
    },
    text: (row) => String(isDiff(row) ? change(row) : of(row)),
  };
};

export const ColumnMenu = ({ where, mode, shape, isReport, onChange }: { where: string; mode: Mode; shape: Shape; isReport: boolean; onChange: (shape: Shape) => void }): JSX.Element => {
  const now = shown(shape, mode, isReport);
  const set = (costs: Cost[] | undefined): void => {
    const next = { ...shape };
    if (costs) next[mode] = costs;
    else delete next[mode];
    remember(`shape.${where}`, next);
    onChange(next);
  };
  const move = (cost: Cost, by: number): void => {
    const list = [...now];
    const at = list.indexOf(cost);
    const to = at + by;
    if (to < 0 || to >= list.length) return;
    list.splice(at, 1);
    list.splice(to, 0, cost);
    set(list);
  };
  return (
    <Menu text="Columns" title="Choose the columns and their order">
      {() => (
        <>
          <ul class="column-list">
            {[...now, ...known(mode, isReport).filter((cost) => !now.includes(cost))].map((cost) => (
              <li key={cost}>
                <label title={help(cost, mode)}>
                  <input
                    type="checkbox"
                    checked={now.includes(cost)}
                    onChange={(event) => set(event.currentTarget.checked ? [...now, cost] : now.filter((other) => other !== cost))}
                  />
                  {name(cost, mode)}
                </label>
                {now.includes(cost) && (
                  <span>
                    <button type="button" class="plain" aria-label={`${name(cost, mode)}: to the left`} onClick={() => move(cost, -1)}>
                      ◂
                    </button>
                    <button type="button" class="plain" aria-label={`${name(cost, mode)}: to the right`} onClick={() => move(cost, 1)}>
                      ▸
                    </button>
                  </span>
                )}
              </li>
            ))}
          </ul>
          <button
            type="button"
            class="button"
            onClick={() => {
              set(undefined);
              remember(`columns.${where}`, {});
            }}
          >
            Reset
          </button>
        </>
      )}
    </Menu>
  );
};

export const recalled = (where: string): Shape => recall(`shape.${where}`, {});
