// Columns of costs, for lists of which every row is a part of the whole: threads, allocators, processes.
import { bytes, exact, percent } from "../units";
import type { Column } from "./grid";

export type Costed = { costs: Record<string, number> };

/** Returns a function that makes a column for one cost, with each row's share of the whole list. */
export const costColumn =
  <Row extends Costed>(list: Row[]) =>
  (id: string, title: string, help: string, isBytes: boolean): Column<Row> => {
    const all = Math.max(1, list.reduce((sum, row) => sum + (row.costs[id] ?? 0), 0));
    return {
      id,
      title,
      help,
      width: Math.max(130, title.length * 8 + 40, (isBytes ? 8 : exact(all).length) * 8 + 84),
      numeric: true,
      cell: (row) => (
        <>
          {isBytes ? bytes(row.costs[id] ?? 0) : exact(row.costs[id] ?? 0)}
          <span class="share">{percent((row.costs[id] ?? 0) / all)}</span>
        </>
      ),
      text: (row) => String(row.costs[id] ?? 0),
      bar: (row) => (row.costs[id] ?? 0) / all,
    };
  };

/** The rows in the order of their peak, or of what is live. */
export const byCost = <Row extends Costed>(rows: Row[], main: string): Row[] => rows.slice().sort((a, b) => (b.costs[main] ?? 0) - (a.costs[main] ?? 0) || (b.costs.allocations ?? 0) - (a.costs.allocations ?? 0));
