// The processes of a tree: what each of them allocated, or all processes of the same name together.
import type { JSX } from "preact";
import { change } from "../store";
import { bytes, exact, several, time } from "../units";
import { usePage } from "./context";
import { byCost, costColumn } from "./cost_columns";
import { type Column, ListGrid } from "./grid";
import { processName } from "./lanes";
import { Num } from "./number";
import { Choices, Empty, NotCompared, Problem, WholeOnly } from "./parts";
import { useRaw } from "./raw";

type Held = { bytes: number; allocations: number };
/** A process, or all processes of one name. Only a process has an index. */
type Row = {
  index?: number;
  pid?: number;
  name: string;
  command?: string[];
  start_ns?: number;
  end_ns?: number | null;
  exit?: string | null;
  note?: string | null;
  processes?: number;
  inherited_bytes?: number;
  peak: Held | null;
  costs: Record<string, number>;
};

export const Processes = (): JSX.Element => {
  const { state, ask, mode: asked, status } = usePage();
  const mode = status.report ? "session" : asked;
  const answer = useRaw("processes", ask.query);
  const isProcess = state.group === "process";
  const main = mode === "moment" ? "live_bytes" : "peak_bytes";
  const rows = (answer.value?.[isProcess ? "processes" : "commands"] as Row[] | undefined) ?? [];
  const list = byCost(rows, main);
  const column = costColumn<Row>(list);
  const plain = (id: string, title: string, help: string, text: (row: Row) => string): Column<Row> => ({ id, title, help, width: Math.max(90, title.length * 8 + 30), numeric: true, cell: text, text });
  const held = (row: Row): string => (row.peak ? bytes(row.peak.bytes) : "–");
  const columns: Column<Row>[] = [
    { id: "name", title: isProcess ? "Process" : "Command", help: "Double-click to see only what it allocated", width: 240, cell: (row) => <span title={row.command?.join(" ")}>{processName(row)}</span>, text: processName },
    ...(mode === "moment"
      ? [column("live_bytes", "Live", "Bytes live at this moment", true), column("live_allocations", "Live blocks", "Blocks live at this moment", false)]
      : [
          column("peak_bytes", "Peak", "Bytes of its blocks when all processes together held most", true),
          column("live_bytes", mode === "session" ? "Live at end" : "Live at range's end", "Bytes of its blocks that were not freed", true),
          column("allocations", "Allocations", "Its calls", false),
          column("temporary", "Temporary", "Freed by the same thread before it allocated anything else", false),
        ]),
    plain("held", "Held at peak", "What it held at the peak of the session: its own blocks, and those inherited from a process that had let go of them", held),
    ...(isProcess
      ? [
          plain("inherited", "Inherited", "What it held when it was forked", (row) => bytes(row.inherited_bytes ?? 0)),
          plain("start", "Started", "When it started", (row) => time(row.start_ns ?? 0)),
          plain("end", "Ended", "When it ended, and how", (row) => (row.end_ns == null ? "runs" : `${time(row.end_ns)}, ${row.exit ?? ""}`)),
        ]
      : [plain("processes", "Processes", "The number of processes of this name", (row) => exact(row.processes ?? 0))]),
  ];
  if (answer.value && rows.length === 0) return <Empty>This trace is of one process. A trace of several is recorded with --follow or made with heaptrack merge.</Empty>;
  return (
    <section class="view" aria-label="Processes">
      <NotCompared />
      <WholeOnly what="processes" />
      {answer.error && <Problem text={answer.error} />}
      <div class="card-head">
        <Choices
          label="Rows"
          value={state.group}
          choices={[
            { value: "process", text: "by process" },
            { value: "command", text: "by command" },
          ]}
          onChange={(group) => change({ group })}
        />
      </div>
      <ListGrid
        label="Processes"
        name="processes"
        tall
        columns={columns}
        list={list}
        version={answer.value}
        idOf={(row) => (row.index === undefined ? row.name : String(row.index))}
        selected={undefined}
        onSelect={() => undefined}
        onOpen={(row) => !status.report && change({ process: [row.index === undefined ? row.name : `#${row.index}`] })}
      />
      {!status.report && (
        <p class="status-line">
          <Num of="rows" value={list.length}>
            {isProcess ? (list.length === 1 ? "1 process" : `${exact(list.length)} processes`) : several(list.length, "command")}
          </Num>{" "}
          · Press Enter or double-click to see only what it allocated
        </p>
      )}
    </section>
  );
};
