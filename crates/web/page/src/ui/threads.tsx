// The costs of each thread's allocations.
import type { JSX } from "preact";
import { change } from "../store";
import { several } from "../units";
import { usePage } from "./context";
import { byCost, costColumn } from "./cost_columns";
import { useRaw } from "./raw";
import { type Column, ListGrid } from "./grid";
import { threadName } from "./lanes";
import { Num } from "./number";
import { NotCompared, Problem, WholeOnly } from "./parts";

type Thread = { index: number; tid: number | null; name: string | null; costs: Record<string, number> };

export const Threads = (): JSX.Element => {
  const { state, ask, mode: asked, status } = usePage();
  const mode = status.report ? "session" : asked;
  const answer = useRaw("threads", ask.query);
  const main = mode === "moment" ? "live_bytes" : "peak_bytes";
  const list = byCost((answer.value?.threads as Thread[] | undefined) ?? [], main);
  const column = costColumn<Thread>(list);
  const columns: Column<Thread>[] = [
    { id: "name", title: "Thread", help: "Double-click to see only what this thread allocated", width: 240, cell: (thread) => threadName(thread), text: threadName },
    ...(mode === "moment"
      ? [column("live_bytes", "Live", "Bytes live at this moment", true), column("live_allocations", "Live blocks", "Blocks live at this moment", false)]
      : [
          column("peak_bytes", "Peak", "Bytes of this thread's blocks when the whole heap was at its largest", true),
          column("live_bytes", mode === "session" ? "Live at end" : "Live at range's end", "Bytes of its blocks that were not freed", true),
          column("allocations", "Allocations", "Calls by this thread", false),
          column("temporary", "Temporary", "Freed by this thread before it allocated anything else", false),
          column("allocated_bytes", "Allocated", "Total bytes", true),
          column("deallocations", "Frees", "Frees of blocks that this thread allocated, by any thread", false),
        ]),
  ];
  return (
    <section class="view" aria-label="Threads">
      <NotCompared />
      <WholeOnly what="threads" />
      {answer.error && <Problem text={answer.error} />}
      <ListGrid
        label="Threads"
        name="threads"
        tall
        columns={columns}
        list={list}
        version={answer.value}
        idOf={(thread) => String(thread.index)}
        selected={state.thread.length === 1 ? String(state.thread[0]) : undefined}
        onSelect={() => undefined}
        onOpen={(thread) => !status.report && change({ thread: [thread.index] })}
      />
      {!status.report && (
        <p class="status-line">
          <Num of="rows" value={list.length}>
            {several(list.length, "thread")}
          </Num>{" "}
          · Press Enter or double-click to see only that thread
        </p>
      )}
    </section>
  );
};
