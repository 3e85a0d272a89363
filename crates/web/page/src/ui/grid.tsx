// A table, flat or a tree, that draws only the visible rows. It may have half a million rows.
//
// Receives: columns, a number of rows, a function that returns a range of rows, and callbacks. Must hold: rows can be reached, selected, opened,
// expanded and copied with the keyboard, and columns can be sorted. (Resizing a column needs the mouse.) As in ARIA's grid pattern, the heads of the columns
// are the row above the first one.
// A screen reader can tell where it is (aria-rowindex, -level, -expanded). Column widths are remembered. (`ColumnMenu` remembers which columns there are.)
import { Component, type ComponentChildren, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { recall, remember } from "../store";
import { useSize } from "./parts";

export type Column<R> = {
  id: string;
  title: string;
  help: string;
  width: number;
  /** The column takes the space that the others leave. Without such a column, the first one does. */
  isWide?: boolean;
  numeric?: boolean;
  cell: (row: R) => ComponentChildren;
  /** The text that is copied. */
  text?: (row: R) => string;
  /** The length of the bar under the number: a share from -1 to 1. */
  bar?: (row: R) => number;
  sortable?: boolean;
};

export type TreeParts<R> = {
  depth: (row: R) => number;
  expandable: (row: R) => boolean;
  expanded: (row: R) => boolean;
  place: (row: R) => [number, number];
  toggle: (row: R, how: "open" | "close" | "all" | "hot" | "none") => void;
  parent: (row: R) => string;
};

export type GridProps<R> = {
  label: string;
  /** The name under which the widths of columns are remembered. */
  name: string;
  columns: Column<R>[];
  count: number;
  rows: (from: number, to: number) => Promise<R[]> | R[];
  /** When this changes, the rows are requested again. */
  version: unknown;
  idOf: (row: R) => string;
  selected?: string | undefined;
  onSelect?: (row: R, index: number) => void;
  onOpen?: (row: R) => void;
  sort?: { id: string; ascending: boolean };
  onSort?: (id: string) => void;
  tree?: TreeParts<R>;
  /** When this changes, the table scrolls to that row. */
  scrollTo?: number | undefined;
  empty?: ComponentChildren;
  tall?: boolean;
};

const ROW = 26;
/** How many rows are drawn above and below the visible ones, so that a slow answer is not noticed. */
const MORE = 4;
/** More rows than are ever drawn at once. The elements of rows that scroll out are used again for rows that scroll in. */
const POOL = 331;

export const Grid = <R,>(props: GridProps<R>): JSX.Element => {
  const { columns, count, version, tree } = props;
  const body = useRef<HTMLDivElement>(null);
  const size = useSize(body);
  const [top, setTop] = useState(0);
  const [rows, setRows] = useState<{ from: number; list: R[] }>({ from: 0, list: [] });
  const [cursor, setCursor] = useState(0);
  /** The column whose head has the cursor. Undefined if a row has it. */
  const [head, setHead] = useState<number | undefined>(undefined);
  const [widths, setWidths] = useState<Record<string, number>>(() => recall(`columns.${props.name}`, {}));
  const asked = useRef(0);

  const first = Math.max(0, Math.floor(top / ROW) - MORE);
  const last = Math.min(count, Math.ceil((top + size.height) / ROW) + MORE);
  useEffect(() => {
    const mine = ++asked.current;
    const answer = props.rows(first, last);
    if (Array.isArray(answer)) setRows({ from: first, list: answer });
    else answer.then((list) => mine === asked.current && setRows({ from: first, list }));
  }, [first, last, version, count]);
  useEffect(() => {
    if (cursor >= count && count > 0) setCursor(count - 1);
  }, [count]);
  useLayoutEffect(() => {
    if (props.scrollTo === undefined || props.scrollTo < 0) return;
    setCursor(props.scrollTo);
    reveal(props.scrollTo);
  }, [props.scrollTo, version]);

  const reveal = (index: number): void => {
    const node = body.current;
    if (!node) return;
    const head = ROW + 6;
    if (index * ROW < node.scrollTop) node.scrollTop = index * ROW;
    else if ((index + 1) * ROW + head > node.scrollTop + node.clientHeight) node.scrollTop = (index + 1) * ROW + head - node.clientHeight;
  };
  const go = (index: number): void => {
    setHead(undefined);
    const next = Math.max(0, Math.min(count - 1, index));
    setCursor(next);
    reveal(next);
    const row = rows.list[next - rows.from];
    if (row !== undefined) props.onSelect?.(row, next);
  };
  const at = (index: number): R | undefined => rows.list[index - rows.from];
  const width = (column: Column<R>): number => widths[column.id] ?? column.width;
  const resize = (column: Column<R>, to: number): void => {
    const next = { ...widths, [column.id]: Math.max(56, Math.round(to)) };
    setWidths(next);
    remember(`columns.${props.name}`, next);
  };

  const sortBy = (index: number): void => {
    const column = columns[index];
    setHead(index);
    if (column && column.sortable !== false) props.onSort?.(column.id);
  };
  const goToHead = (index: number): void => {
    setHead(index);
    document.getElementById(headId(index))?.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  /** Returns whether the key was for the heads of the columns. */
  const headKeys = (key: string): boolean => {
    if (head === undefined) {
      if (key !== "ArrowUp" || cursor > 0 || !props.onSort) return false;
      goToHead(0);
    } else if (key === "ArrowLeft") goToHead(Math.max(0, head - 1));
    else if (key === "ArrowRight") goToHead(Math.min(columns.length - 1, head + 1));
    else if (key === "ArrowDown") go(0);
    else if (key === "Enter" || key === " ") sortBy(head);
    else return key === "ArrowUp";
    return true;
  };

  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && headKeys(event.key)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const row = head === undefined ? at(cursor) : undefined;
    const page = Math.max(1, Math.floor(size.height / ROW) - 2);
    const moves: Record<string, number> = { ArrowDown: cursor + 1, ArrowUp: cursor - 1, PageDown: cursor + page, PageUp: cursor - page, Home: 0, End: count - 1 };
    const target = moves[event.key];
    if (target !== undefined) go(target);
    else if (event.key === "Enter" && row !== undefined) {
      if (props.onOpen) props.onOpen(row);
      else props.onSelect?.(row, cursor);
    } else if (event.key === " " && row !== undefined) props.onSelect?.(row, cursor);
    else if ((event.ctrlKey || event.metaKey) && event.key === "c" && row !== undefined && !getSelection()?.toString()) copyRow(row);
    else if (tree && row !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === "ArrowRight") {
        if (tree.expandable(row) && !tree.expanded(row)) tree.toggle(row, "open");
        else go(cursor + 1);
      } else if (event.key === "ArrowLeft") {
        if (tree.expanded(row)) tree.toggle(row, "close");
        else toParent(row);
      } else if (event.key === "*") tree.toggle(row, "all");
      else if (event.key === "h") tree.toggle(row, "hot");
      else if (event.key === "-") tree.toggle(row, "none");
      else return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const toParent = (row: R): void => {
    if (!tree) return;
    const wanted = tree.parent(row);
    for (let index = cursor - 1; index >= rows.from; index--) {
      const candidate = at(index);
      if (candidate !== undefined && props.idOf(candidate) === wanted) {
        go(index);
        return;
      }
    }
  };
  const copyRow = (row: R): void => {
    const text = columns.map((column) => (column.text ? column.text(row) : "")).join("\t");
    void navigator.clipboard?.writeText(text).catch(() => undefined);
  };

  // Always the same object, so that unchanged rows are not drawn again.
  const handlers = useRef<Handlers<R>>({ click: () => undefined, open: () => undefined }).current;
  handlers.click = (row, index) => {
    setHead(undefined);
    setCursor(index);
    props.onSelect?.(row, index);
  };
  handlers.open = (row) => props.onOpen?.(row);
  const wide = Math.max(0, columns.findIndex((column) => column.isWide));
  const template = columns.map((column, index) => (index === wide ? `minmax(${width(column)}px, 1fr)` : `${width(column)}px`)).join(" ");
  const rowId = (index: number): string => `${props.name}-row-${index}`;
  const headId = (index: number): string => `${props.name}-head-${index}`;
  return (
    <div
      ref={body}
      class={props.tall ? "grid tall" : "grid"}
      role={tree ? "treegrid" : "grid"}
      aria-label={props.label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length}
      aria-activedescendant={head !== undefined ? headId(head) : count > 0 ? rowId(cursor) : undefined}
      tabIndex={0}
      style={{ "--columns": template }}
      onKeyDown={keys}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div class="grid-head" role="row" aria-rowindex={1}>
        {columns.map((column, index) => (
          <Head key={column.id} id={headId(index)} column={column} props={props} width={width(column)} isHere={index === head} onSort={() => sortBy(index)} onResize={(to) => resize(column, to)} />
        ))}
      </div>
      <div class="grid-body" role="rowgroup" style={{ height: `${count * ROW}px` }}>
        {rows.list.map((row, offset) => {
          const index = rows.from + offset;
          if (index >= count) return null;
          const isSelected = props.selected !== undefined && props.idOf(row) === props.selected;
          return <GridRow key={index % POOL} id={rowId(index)} row={row} index={index} columns={columns} tree={tree} isSelected={isSelected} isHere={head === undefined && index === cursor} on={handlers} />;
        })}
      </div>
      {count === 0 && <div class="empty">{props.empty ?? "Nothing here."}</div>}
    </div>
  );
};

type Handlers<R> = { click: (row: R, index: number) => void; open: (row: R) => void };
type RowProps<R> = { id: string; row: R; index: number; columns: Column<R>[]; tree: TreeParts<R> | undefined; isSelected: boolean; isHere: boolean; on: Handlers<R> };

/** One row. It is drawn again only when it has changed. */
class GridRow<R> extends Component<RowProps<R>> {
  override shouldComponentUpdate(next: RowProps<R>): boolean {
    const { props } = this;
    return next.row !== props.row || next.index !== props.index || next.columns !== props.columns || next.isSelected !== props.isSelected || next.isHere !== props.isHere;
  }

  override render({ id, row, index, columns, tree, isSelected, isHere, on }: RowProps<R>): JSX.Element {
    return (
      <div
        id={id}
        class={`grid-row${isSelected ? " selected" : ""}${isHere ? " here" : ""}`}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={isSelected}
        aria-level={tree ? tree.depth(row) : undefined}
        aria-expanded={tree?.expandable(row) ? tree.expanded(row) : undefined}
        aria-posinset={tree ? tree.place(row)[0] : undefined}
        aria-setsize={tree ? tree.place(row)[1] : undefined}
        style={{ top: `${index * ROW}px` }}
        onClick={() => on.click(row, index)}
        onDblClick={() => on.open(row)}
      >
        {columns.map((column) => cell(column, row))}
      </div>
    );
  }
}

/** A function and not a component, because hundreds are made in a frame. */
const cell = <R,>(column: Column<R>, row: R): JSX.Element => {
  const share = column.bar?.(row) ?? 0;
  return (
    <div key={column.id} class={column.numeric ? "cell number" : "cell"} role="gridcell" data-column={column.id} data-value={column.text?.(row)}>
      {share !== 0 && <span class={share < 0 ? "heat less" : "heat"} style={{ width: `${Math.min(100, Math.abs(share) * 100)}%` }} />}
      <span class="cell-text">{column.cell(row)}</span>
    </div>
  );
};

type HeadProps<R> = { id: string; column: Column<R>; props: GridProps<R>; width: number; isHere: boolean; onSort: () => void; onResize: (to: number) => void };

const Head = <R,>({ id, column, props, width, isHere, onSort, onResize }: HeadProps<R>): JSX.Element => {
  const start = useRef<[number, number] | undefined>(undefined);
  const isSorted = props.sort?.id === column.id;
  const direction = isSorted ? (props.sort?.ascending ? "ascending" : "descending") : "none";
  const sortable = props.onSort !== undefined && column.sortable !== false;
  return (
    <div id={id} class={`head${column.numeric ? " number" : ""}${isHere ? " here" : ""}`} role="columnheader" aria-sort={sortable ? direction : undefined} title={column.help}>
      {sortable ? (
        <button type="button" tabIndex={-1} class="head-button" onClick={onSort}>
          {column.title}
          {isSorted && <span aria-hidden="true">{props.sort?.ascending ? " ▴" : " ▾"}</span>}
        </button>
      ) : (
        <span class="head-button">{column.title}</span>
      )}
      <span
        class="sizer"
        aria-hidden="true"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          start.current = [event.clientX, width];
        }}
        onPointerMove={(event) => {
          if (start.current) onResize(start.current[1] + event.clientX - start.current[0]);
        }}
        onPointerUp={() => {
          start.current = undefined;
        }}
        onDblClick={() => onResize(column.width)}
      />
    </div>
  );
};

/** A table of a list that is completely in memory. */
export const ListGrid = <R,>({ list, ...others }: Omit<GridProps<R>, "count" | "rows"> & { list: R[] }): JSX.Element => <Grid {...others} count={list.length} rows={(from, to) => list.slice(from, to)} />;
