// The costs of each allocator's blocks.
import type { JSX } from "preact";
import { change } from "../store";
import { several } from "../units";
import { usePage } from "./context";
import { byCost, costColumn, type Costed } from "./cost_columns";
import { type Column, ListGrid } from "./grid";
import { Num } from "./number";
import { Empty, NotCompared, Problem, WholeOnly } from "./parts";
import { useRaw } from "./raw";

type Allocator = Costed & { name: string };

export const Allocators = (): JSX.Element => {
  const { state, ask, mode: asked, status } = usePage();
  const mode = status.report ? "session" : asked;
  const answer = useRaw("allocators", ask.query);
  const list = byCost((answer.value?.allocators as Allocator[] | undefined) ?? [], mode === "moment" ? "live_bytes" : "peak_bytes");
  const column = costColumn<Allocator>(list);
  const columns: Column<Allocator>[] = [
    { id: "name", title: "Allocator", help: "Double-click to see only its blocks", width: 240, cell: (row) => row.name, text: (row) => row.name },
    ...(mode === "moment"
      ? [column("live_bytes", "Live", "Bytes live at this moment", true), column("live_allocations", "Live blocks", "Blocks live at this moment", false)]
      : [
          column("peak_bytes", "Peak", "Bytes of its blocks when the whole heap was at its largest", true),
          column("live_bytes", mode === "session" ? "Live at end" : "Live at range's end", "Bytes of its blocks that were not freed", true),
          column("allocations", "Allocations", "Calls of its functions", false),
          column("temporary", "Temporary", "Freed by the same thread before it allocated anything else", false),
          column("allocated_bytes", "Allocated", "Total bytes", true),
          column("deallocations", "Frees", "Frees of its blocks", false),
        ]),
  ];
  if (answer.value && list.length === 0) return <Empty>No blocks of an allocator.</Empty>;
  return (
    <section class="view" aria-label="Allocators">
      <NotCompared />
      <WholeOnly what="allocators" />
      {answer.error && <Problem text={answer.error} />}
      <ListGrid
        label="Allocators"
        name="allocators"
        tall
        columns={columns}
        list={list}
        version={answer.value}
        idOf={(row) => row.name}
        selected={state.allocator.length === 1 ? state.allocator[0] : undefined}
        onSelect={() => undefined}
        onOpen={(row) => !status.report && change({ allocator: [row.name] })}
      />
      {!status.report && (
        <p class="status-line">
          <Num of="rows" value={list.length}>
            {several(list.length, "allocator")}
          </Num>{" "}
          · Press Enter or double-click to see only its blocks
        </p>
      )}
    </section>
  );
};
