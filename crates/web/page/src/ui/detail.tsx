// Details of what is selected: text that can be selected and copied, and every stack of it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { COSTS, help, name, value } from "../costs";
import { nameOf, where, whole } from "../names";
import { change, useAsk } from "../store";
import { bytes, exact, full, percent, show, signed, time } from "../units";
import type { Stack } from "../work/protocol";
import type { Level } from "../work/stacks";
import { known } from "./columns";
import { usePage } from "./context";
import { EditorLink } from "./editor";
import { suppression } from "./leaks";
import { Problem, copy } from "./parts";

const PAGE = 30;

export const Detail = ({ overview }: { overview: import("../work/protocol").Overview }): JSX.Element | null => {
  const { picked, pick, mode, say, state, ask, look, cost, isDiff, status } = usePage();
  const [shown, setShown] = useState(PAGE);
  const stacks = useAsk("stacks", picked && { ask, look, selection: picked.selection, cost, from: 0, to: shown });
  if (!picked) return null;
  const { level } = picked.row;
  const sums = picked.row.sums.length > 0 ? picked.row.sums : (stacks.value?.sums ?? picked.row.sums);
  const { totals } = overview;
  const fn = level.function ?? "";
  return (
    <aside class="detail" aria-label="Details">
      <header class="card-head">
        <h2>Details</h2>
        <span class="push" />
        <button type="button" class="plain" aria-label="Close the details" title="Close (Esc)" onClick={() => pick(undefined)}>
          ×
        </button>
      </header>
      <p class="full-name">{picked.title}</p>
      <p class="full-place">
        {whole(level) || "no line is known"} <EditorLink file={level.file} line={level.line} />
        <br />
        <span class="hint">
          {level.module ?? "no module"}
          {level.class && ` · ${level.class}`}
          {level.inlined && " · inlined"}
        </span>
      </p>
      <div class="detail-actions">
        <button type="button" class="button" disabled={!fn} onClick={() => change({ view: "callers", fn })}>
          Callers
        </button>
        <button type="button" class="button" disabled={!level.file} onClick={() => level.file && change({ view: "source", src: level.file, line: level.line ?? undefined })}>
          Source
        </button>
        <button type="button" class="button" disabled={!fn} title="Only stacks with this function" onClick={() => change({ include: [...state.include, `function:${fn}`] })}>
          Only this
        </button>
        <button type="button" class="button" disabled={!fn} title="No stacks with this function" onClick={() => change({ exclude: [...state.exclude, `function:${fn}`] })}>
          Without
        </button>
        <button
          type="button"
          class="button"
          disabled={!fn}
          title="Copies a line in LSan's format for --suppressions"
          onClick={async () => {
            const line = suppression(fn);
            await copy(`${line}\n`);
            say(`Copied: ${line}`);
          }}
        >
          Suppress…
        </button>
        <button type="button" class="button" onClick={async () => say((await copy(asText(picked.title, level, stacks.value?.stacks ?? []))) ? "Copied." : "The browser does not allow copying.")}>
          Copy
        </button>
      </div>
      {sums.length > 0 && (
        <table class="plain-table costs">
          <thead>
            <tr>
              <th>Cost</th>
              {isDiff && <th class="number">Before</th>}
              <th class="number">{isDiff ? "After" : "Total"}</th>
              {isDiff && <th class="number">Change</th>}
              {!isDiff && picked.row.self && <th class="number">Self</th>}
              <th class="number">Share</th>
            </tr>
          </thead>
          <tbody>
            {known(mode, status.report !== null).map((one) => {
              const { kind } = COSTS[one];
              const amount = value(sums, one);
              const before = picked.row.base ? value(picked.row.base, one) : 0;
              const all = value(totals.sums, one);
              const isSum = kind !== "ratio" && one !== "average" && one !== "mean_lifetime";
              return (
                <tr key={one} title={help(one, mode)}>
                  <th scope="row">{name(one, mode)}</th>
                  {isDiff && <td class="number">{show(before, kind)}</td>}
                  <td class="number" title={full(amount, kind)}>
                    {show(amount, kind)}
                  </td>
                  {isDiff && <td class={`number ${amount > before ? "more" : amount < before ? "fewer" : ""}`}>{signed(amount - before, kind)}</td>}
                  {!isDiff && picked.row.self && <td class="number">{show(value(picked.row.self, one), kind)}</td>}
                  <td class="number">{isSum && all !== 0 ? percent(amount / all) : ""}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
      {stacks.error && <Problem text={stacks.error} />}
      {stacks.value && (
        <section aria-label="Stacks of the selection">
          <h3>
            {exact(stacks.value.count)} {stacks.value.count === 1 ? "stack" : "stacks"} <span class="hint">by {name(cost, mode)}</span>
          </h3>
          <ol class="stacks">
            {stacks.value.stacks.map((stack, index) => (
              <StackEntry key={stack.stack} stack={stack} open={index === 0} total={value(totals.sums, cost)} />
            ))}
          </ol>
          {stacks.value.count > shown && (
            <button type="button" class="button" onClick={() => setShown(shown + 100)}>
              {exact(stacks.value.count - shown)} more
            </button>
          )}
        </section>
      )}
    </aside>
  );
};

const StackEntry = ({ stack, open, total }: { stack: Stack; open: boolean; total: number }): JSX.Element => {
  const { mode, cost, state, isDiff } = usePage();
  const { kind } = COSTS[cost];
  const amount = value(stack.sums, cost) - (stack.base ? value(stack.base, cost) : 0);
  const blocks = mode === "moment" ? "live_allocations" : "allocations";
  return (
    <li>
      <details open={open}>
        <summary>
          <b>{isDiff ? signed(amount, kind) : show(amount, kind)}</b> {total !== 0 && <span class="share">{percent(amount / total)}</span>}{" "}
          <span class="hint">
            {exact(value(stack.sums, blocks))} {mode === "moment" ? "live" : "allocations"}
            {mode !== "moment" && value(stack.sums, "live_allocations") > 0 && `, ${exact(value(stack.sums, "live_allocations"))} live at the end`}
          </span>
        </summary>
        {stack.own && stack.own.bytes > 0 && (
          <p class="hint">
            own peak {bytes(stack.own.bytes)} at {time(stack.own.time_ns)}
            {stack.own.largest > 0 && ` · largest block ${bytes(stack.own.largest)}`}
          </p>
        )}
        <ul class="frames">
          {stack.levels.map((level, index) => (
            <li key={index} class={index === stack.blamed ? "frame blamed" : `frame ${level.class === "program" ? "" : "other"}`}>
              <button type="button" class="frame-name" title={`${nameOf(level, true)}\nClick: callers and callees`} onClick={() => change({ view: "callers", fn: level.function ?? "", ...(level.class === "program" ? {} : { levels: "all" as const }) })}>
                {nameOf(level, state.full)}
              </button>{" "}
              <span class="place" title={whole(level)}>
                {where(level)}
              </span>
            </li>
          ))}
        </ul>
      </details>
    </li>
  );
};

const asText = (title: string, level: Level, stacks: Stack[]): string => {
  const lines = [title, whole(level), level.module ?? ""].filter(Boolean);
  for (const stack of stacks) {
    lines.push("", `${exact(value(stack.sums, "allocations"))} allocations, peak ${exact(value(stack.sums, "peak_bytes"))} B, live at the end ${exact(value(stack.sums, "live_bytes"))} B`);
    for (const frame of stack.levels) lines.push(`  ${nameOf(frame, true)}  ${whole(frame)}`);
  }
  return `${lines.join("\n")}\n`;
};
