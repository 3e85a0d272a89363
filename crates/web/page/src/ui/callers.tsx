// Caller / callee: all functions, and the callers, callees and lines of one of them.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../client";
import { type Cost, usable } from "../costs";
import { base, labelOf, whole } from "../names";
import { change, useAsk, usePreference } from "../store";
import type { Row } from "../work/protocol";
import { ColumnMenu, LevelName, costColumn, recalled, shown } from "./columns";
import { usePage } from "./context";
import { nameKey } from "./figures";
import { type Column, Grid, ListGrid } from "./grid";
import { LookTools } from "./look";
import { Empty, Problem, Splitter } from "./parts";
import { EditorLink } from "./editor";

export const Callers = (): JSX.Element => {
  const { state, ask: about, look, mode, cost, pick, status } = usePage();
  const [shape, setShape] = useState(() => recalled("callers"));
  const [filter, setFilter] = useState("");
  const [height, setHeight] = usePreference("callers.height", 300);
  const [self, setSelf] = useState(false);
  const [version, setVersion] = useState(0);
  const sortCost: Cost | "name" = state.sort === "name" ? "name" : usable((state.sort ?? state.cost) as Cost, mode);
  const list = useAsk("functions", { ask: about, look, sort: { cost: sortCost, ascending: state.ascending }, self, filter });
  useEffect(() => {
    if (list.value && !list.busy) setVersion((old) => old + 1);
  }, [list.value, list.busy]);
  const totals = list.value?.totals;
  const costs = shown(shape, mode, status.report !== null);
  const location = useMemo<Column<Row>>(
    () => ({
      id: "name",
      title: "Function",
      help: "Click to see its callers, callees and lines below",
      width: 300,
      cell: (row) => (
        <span class="tree-cell" title={`${labelOf(row.level, look.merge, true)}\n${whole(row.level)}`}>
          <LevelName level={row.level} merge={look.merge} full={state.full} search={filter} />
        </span>
      ),
      text: (row) => `${labelOf(row.level, look.merge, true)}\t${whole(row.level)}`,
    }),
    [look.merge, state.full, filter],
  );
  const columns = useMemo(
    () => [location, ...costs.map((one) => costColumn(one, { mode, totals })), ...costs.map((one) => costColumn(one, { mode, totals, self: true }))],
    [location, costs.join(), mode, totals],
  );
  const found = useAsk("key", state.fn === undefined ? undefined : { ask: about, look, name: state.fn });
  const around = useAsk("neighbours", found.value === undefined ? undefined : { ask: about, look, key: found.value, cost });
  const choose = (row: Row): void => {
    change({ fn: nameKey(row, state) || labelOf(row.level, "function", true) });
    pick({ title: labelOf(row.level, look.merge, true), level: row.level, selection: { of: "function", key: row.key } });
  };
  return (
    <section class="view" aria-label="Caller / callee">
      <div class="tools">
        <span class="filter" role="search">
          <input type="search" placeholder="find a function…" title="A part of a name; also file:TEXT, module:TEXT or /REGEX/" aria-label="Find a function" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} data-key="/" />
        </span>
        <LookTools />
        <span class="push" />
        <ColumnMenu where="callers" mode={mode} shape={shape} isReport={status.report !== null} onChange={setShape} />
      </div>
      {list.error && <Problem text={list.error} />}
      <div class="pane" style={{ height: `${height}px` }}>
        <Grid
          label="Functions, inclusive and self"
          name="callers"
          columns={columns}
          count={list.value?.count ?? 0}
          rows={(from, to) => ask("functionWindow", { from, to })}
          version={version}
          idOf={(row) => String(row.key)}
          selected={found.value === undefined ? undefined : String(found.value)}
          onSelect={choose}
          sort={{ id: self ? `self ${sortCost}` : sortCost, ascending: state.ascending }}
          onSort={(id) => {
            const isSelf = id.startsWith("self ");
            const wanted = (isSelf ? id.slice(5) : id) as Cost;
            setSelf(isSelf);
            change(wanted === sortCost && isSelf === self ? { ascending: !state.ascending } : { sort: wanted, ascending: wanted === ("name" as string), ...(wanted === ("name" as string) ? {} : { cost: wanted }) });
          }}
        />
      </div>
      <Splitter label="Height of the list of functions" vertical={false} onMove={(delta) => setHeight(Math.max(120, Math.min(innerHeight, height + delta)))} />
      {state.fn === undefined && <Empty>Choose a function above to see its callers, callees and lines.</Empty>}
      {state.fn !== undefined && !found.busy && found.value === undefined && <Empty>{state.fn.split("\t")[0]} is not among the shown functions. Remove a filter, or show all code.</Empty>}
      {around.value && found.value !== undefined && <Around value={around.value} location={location} costs={costs} totals={totals} onChoose={choose} />}
    </section>
  );
};

type Around = NonNullable<import("../work/protocol").Requests["neighbours"]["result"]>;

const Around = ({ value: around, location, costs, totals, onChoose }: { value: Around; location: Column<Row>; costs: Cost[]; totals: import("../work/protocol").Totals | undefined; onChoose: (row: Row) => void }): JSX.Element => {
  const { mode, look } = usePage();
  const [some] = [costs.slice(0, 4)];
  const columns = (title: string): Column<Row>[] => [{ ...location, title, width: 200 }, ...some.map((one) => costColumn(one, { mode, totals }))];
  type Line = Around["lines"][number];
  const lineRow = (line: Line): Row => ({ level: around.subject.level, key: 0, sums: line.sums, base: line.base, self: line.self });
  const lines: Column<Line>[] = [
    {
      id: "line",
      title: "Line",
      help: "A line of the function; click to see its source",
      width: 200,
      cell: (line) => (
        <span class="tree-cell" title={line.file}>
          <span class="tree-name">{line.file ? `${base(line.file)}:${line.line}` : "[unknown]"}</span> <EditorLink file={line.file} line={line.line} />
        </span>
      ),
      text: (line) => `${line.file}:${line.line}`,
    },
    ...some.map((one) => {
      const column = costColumn(one, { mode, totals });
      return { ...column, cell: (line: Line) => column.cell(lineRow(line)), bar: (line: Line) => column.bar?.(lineRow(line)) ?? 0, text: (line: Line) => column.text?.(lineRow(line)) ?? "" } as Column<Line>;
    }),
    ...some.map((one) => {
      const column = costColumn(one, { mode, totals, self: true });
      return { ...column, cell: (line: Line) => column.cell(lineRow(line)), bar: (line: Line) => column.bar?.(lineRow(line)) ?? 0, text: (line: Line) => column.text?.(lineRow(line)) ?? "" } as Column<Line>;
    }),
  ];
  const title = labelOf(around.subject.level, look.merge, false);
  return (
    <div class="around">
      <h3 class="subject">
        About <code>{title}</code>
      </h3>
      <div class="around-panes">
        <ListGrid label={`Callers of ${title}`} name="callers-of" columns={columns(`Called by (${around.callers.length})`)} list={around.callers} version={around} idOf={(row) => String(row.key)} onSelect={() => undefined} onOpen={onChoose} empty="No callers: stacks begin here." />
        <ListGrid label={`Callees of ${title}`} name="callees-of" columns={columns(`Calls (${around.callees.length})`)} list={around.callees} version={around} idOf={(row) => String(row.key)} onSelect={() => undefined} onOpen={onChoose} empty="No callees: it allocates directly." />
        <ListGrid label={`Lines of ${title}`} name="lines-of" columns={lines} list={around.lines} version={around} idOf={(line) => `${line.file}:${line.line}`} onSelect={() => undefined} onOpen={(line) => line.file && change({ view: "source", src: line.file, line: line.line })} empty="The lines are not known." />
      </div>
    </div>
  );
};
