// Bottom-up and top-down: a tree table of all stacks.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../client";
import { COSTS, type Cost, help, isKnown, name, usable, value } from "../costs";
import { labelOf, whole } from "../names";
import { change, useAsk } from "../store";
import { exact, show } from "../units";
import type { TreeRow } from "../work/protocol";
import { lookName } from "../work/stacks";
import type { Direction } from "../work/tree";
import { ColumnMenu, LevelName, costColumn, recalled, shown } from "./columns";
import { usePage } from "./context";
import { nameKey } from "./figures";
import { type Column, Grid } from "./grid";
import { LookTools, QuickFilter, firstText } from "./look";
import { Num } from "./number";
import { Problem } from "./parts";

export const TreeView = ({ direction }: { direction: Direction }): JSX.Element => {
  const { state, ask: about, look, mode, pick, picked, say, status } = usePage();
  const [shape, setShape] = useState(() => recalled(direction));
  const [version, setVersion] = useState(0);
  const [count, setCount] = useState<number | undefined>(undefined);
  const [scroll, setScroll] = useState<number | undefined>(undefined);
  const sortCost: Cost | "name" = state.sort === "name" ? "name" : usable((state.sort ?? state.cost) as Cost, mode);
  const sort = { cost: sortCost, ascending: state.ascending };
  const tree = useAsk("tree", { ask: about, look, direction, sort });
  useEffect(() => {
    if (!tree.value || tree.busy) return;
    setCount(tree.value.count);
    setVersion((old) => old + 1);
  }, [tree.value, tree.busy]);
  const totals = tree.value?.totals;
  const costs = shown(shape, mode, status.report !== null);
  const toggle = async (row: { path: string }, how: "open" | "close" | "all" | "hot" | "none"): Promise<void> => {
    const answer = await ask("toggle", { direction, path: row.path, how });
    setCount(answer.count);
    setVersion((old) => old + 1);
    if (how === "hot") setScroll(answer.index);
    if (how === "all") say(`${exact(answer.count)} rows`);
  };
  const highlight = firstText(state.include);
  const columns = useMemo<Column<TreeRow>[]>(() => {
    const location: Column<TreeRow> = {
      id: "name",
      title: direction === "bottom-up" ? "Location (callers below)" : "Location (callees below)",
      help: "Function, file and line. The right and left arrows expand and collapse, * expands all below, H expands the most expensive path.",
      width: 340,
      cell: (row) => (
        <span class="tree-cell" style={{ paddingLeft: `${row.indent * 14}px` }} title={`${labelOf(row.level, look.merge, true)}\n${whole(row.level)}\n${row.level.module ?? ""}`}>
          {row.expandable ? (
            <button
              type="button"
              tabIndex={-1}
              class={row.expanded ? "twist open" : "twist"}
              aria-label={row.expanded ? "Collapse" : "Expand"}
              onClick={(event) => {
                event.stopPropagation();
                void toggle(row, event.altKey || event.shiftKey ? "all" : row.expanded ? "close" : "open");
              }}
            >
              ▸
            </button>
          ) : (
            <span class="twist none" />
          )}
          <LevelName level={row.level} merge={look.merge} full={state.full} search={highlight} />
        </span>
      ),
      text: (row) => `${labelOf(row.level, look.merge, true)}\t${whole(row.level)}`,
    };
    const numbers = costs.map((cost) => costColumn(cost, { mode, totals }) as Column<TreeRow>);
    const selfCost: Cost = sortCost === "name" ? usable(state.cost, mode) : sortCost;
    const own: Column<TreeRow> = {
      ...(costColumn(selfCost, { mode, totals, self: true }) as Column<TreeRow>),
      title: `Self: ${name(selfCost, mode)}`,
      help: `${help(selfCost, mode)} Only for stacks that end here.`,
      sortable: false,
    };
    return direction === "top-down" ? [location, ...numbers, own] : [location, ...numbers];
  }, [direction, look.merge, state.full, highlight, costs.join(), mode, totals, sortCost, version]);
  return (
    <section class="view" aria-label={direction === "bottom-up" ? "Bottom-up" : "Top-down"}>
      <div class="tools">
        <QuickFilter />
        <LookTools />
        <span class="push" />
        <button type="button" class="button" title="Expand the most expensive path (H)" onClick={() => toggle({ path: "" }, "hot")}>
          Hot path
        </button>
        <button type="button" class="button" title="Collapse everything" onClick={() => toggle({ path: "" }, "none")}>
          Collapse
        </button>
        <ColumnMenu where={direction} mode={mode} shape={shape} isReport={status.report !== null} onChange={setShape} />
      </div>
      {tree.error && <Problem text={tree.error} />}
      <Grid
        label={direction === "bottom-up" ? "Bottom-up tree" : "Top-down tree"}
        name={direction}
        tall
        columns={columns}
        count={count ?? 0}
        rows={(from, to) => ask("window", { direction, from, to })}
        version={version}
        idOf={(row) => row.path}
        selected={picked?.selection.of === "tree" && picked.selection.direction === direction && lookName(picked.look) === lookName(look) ? picked.selection.path : undefined}
        onSelect={(row) => pick({ title: labelOf(row.level, look.merge, true), level: row.level, selection: { of: "tree", direction, path: row.path } })}
        onOpen={(row) => change({ view: "callers", fn: nameKey(row, state) })}
        sort={{ id: sortCost, ascending: state.ascending }}
        onSort={(id) => change(id === sortCost ? { ascending: !state.ascending } : { sort: id as Cost, ascending: id === "name", ...(id === "name" ? {} : { cost: id as Cost }) })}
        scrollTo={scroll}
        tree={{
          depth: (row) => row.depth,
          expandable: (row) => row.expandable,
          expanded: (row) => row.expanded,
          place: (row) => [row.place, row.siblings],
          toggle,
          parent: (row) => row.path.slice(0, Math.max(0, row.path.lastIndexOf("."))),
        }}
        empty={tree.busy ? "Computing…" : "No stack matches. Remove a filter above."}
      />
      {totals && (
        <p class="status-line">
          <Num of="rows" value={count ?? 0}>
            {exact(count ?? 0)} rows
          </Num>{" "}
          ·{" "}
          {costs
            .slice(0, 5)
            .map((cost, index) => (
              // An element, not a fragment: Preact fails to move a fragment whose first child appears or disappears.
              <span key={cost}>
                {index > 0 && " · "}
                {name(cost, mode)}{" "}
                <Num of={cost} value={value(totals.sums, cost)}>
                  {isKnown(totals.sums, cost) ? show(value(totals.sums, cost), COSTS[cost].kind) : "–"}
                </Num>
              </span>
            ))}
        </p>
      )}
    </section>
  );
};
