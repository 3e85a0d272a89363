// The details of the selection, as text that can be copied, with all its stacks.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { COSTS, type Cost, type Mode, help, isKnown, isPart, knows, largest, name, usable, value } from "../costs";
import { nameOf, where, whole } from "../names";
import type { State } from "../state";
import { change, useAsk } from "../store";
import { bytes, exact, full, percent, show, signed, time } from "../units";
import type { Requests, Stack } from "../work/protocol";
import type { Level } from "../work/stacks";
import { known } from "./columns";
import { askOf, usePage } from "./context";
import { EditorLink } from "./editor";
import { suppression } from "./leaks";
import { Num } from "./number";
import { Problem, copy } from "./parts";
import { treated } from "./wrappers";

const PAGE = 30;

/** The numbers of the selection for the current query. The earlier click decides only which stacks they are about. */
const useSelection = (shown: number) => {
  const { picked, state, status, ask, cost, mode } = usePage();
  const isWhole = picked?.isWhole === true;
  const about = isWhole ? askOf(alone(state), status) : ask;
  const shape = isWhole ? "session" : mode;
  const by = isWhole ? usable("leaked_bytes", shape) : cost;
  const answer = useAsk("stacks", picked && { ask: about, look: picked.look, selection: picked.selection, cost: by, from: 0, to: shown });
  return { answer, mode: shape, cost: by, isDiff: !isWhole && state.compare !== undefined };
};

/** The state without range and comparison, which some views do not support. */
const alone = (state: State): State => ({ ...state, at: undefined, from: undefined, to: undefined, compare: undefined });

export const Detail = (): JSX.Element | null => {
  const { picked, pick, say, state, status } = usePage();
  const [shown, setShown] = useState(PAGE);
  const { answer: stacks, mode, cost, isDiff } = useSelection(shown);
  if (!picked) return null;
  const { level } = picked;
  const found = stacks.value;
  const fn = level.function ?? "";
  return (
    <aside class="detail" aria-label="Details">
      <header class="card-head">
        <h2>Details</h2>
        {picked.isWhole && <span class="hint">of the whole session</span>}
        <span class="push" />
        <button type="button" class="plain" aria-label="Close the details" title="Close (Esc)" onClick={() => pick(undefined)}>
          ×
        </button>
      </header>
      <p class="full-name">{picked.title}</p>
      <p class="full-place">
        {whole(level) || "the line is not known"} <EditorLink file={level.file} line={level.line} />
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
        <button type="button" class="button" disabled={!fn} title="Show only stacks with this function" onClick={() => change({ include: [...state.include, `function:${fn}`] })}>
          Show only
        </button>
        <button type="button" class="button" disabled={!fn} title="Remove all stacks with this function" onClick={() => change({ exclude: [...state.exclude, `function:${fn}`] })}>
          Exclude
        </button>
        {!status.report && (
          <button type="button" class="button" disabled={!fn} title="Its memory counts as its caller's, in lists by your code" onClick={() => fn && change(treated(state, fn))}>
            Treat as allocator
          </button>
        )}
        <button
          type="button"
          class="button"
          disabled={!fn}
          title="Copies a line in LeakSanitizer's format for --suppressions"
          onClick={async () => {
            const line = suppression(fn);
            await copy(`${line}\n`);
            say(`Copied: ${line}`);
          }}
        >
          Suppress…
        </button>
        <button type="button" class="button" onClick={async () => say((await copy(asText(picked.title, level, found?.stacks ?? []))) ? "Copied." : "The browser does not allow copying.")}>
          Copy
        </button>
      </div>
      {found && found.count === 0 && <p class="empty">The current filter or time excludes this selection.</p>}
      {found && found.count > 0 && <Costs found={found} mode={mode} isDiff={isDiff} />}
      {stacks.error && <Problem text={stacks.error} />}
      {found && found.count > 0 && (
        <section aria-label="Stacks of the selection">
          <h3>
            <span data-number="detail stacks" data-value={found.count}>
              {exact(found.count)}
            </span>{" "}
            {found.count === 1 ? "stack" : "stacks"} <span class="hint">by {name(cost, mode)}</span>
          </h3>
          <ol class="stacks">
            {found.stacks.map((stack, index) => (
              <StackEntry key={stack.stack} stack={stack} open={index === 0} found={found} mode={mode} cost={cost} isDiff={isDiff} />
            ))}
          </ol>
          {found.count > shown && (
            <button type="button" class="button" onClick={() => setShown(shown + 100)}>
              {exact(found.count - shown)} more
            </button>
          )}
        </section>
      )}
    </aside>
  );
};

type Found = Requests["stacks"]["result"];

/** Every cost of the selection. */
const Costs = ({ found, mode, isDiff }: { found: Found; mode: Mode; isDiff: boolean }): JSX.Element => {
  const { status } = usePage();
  const { self } = found;
  return (
    <table class="plain-table costs">
      <thead>
        <tr>
          <th>Cost</th>
          {isDiff && <th class="number">Before</th>}
          <th class="number">{isDiff ? "After" : "Total"}</th>
          {isDiff && <th class="number">Change</th>}
          {!isDiff && self && <th class="number">Self</th>}
          {!isDiff && <th class="number">Share</th>}
        </tr>
      </thead>
      <tbody>
        {known(mode, status.report !== null).map((one) => {
          const { kind } = COSTS[one];
          const of = (sums: Float64Array | undefined): number => (sums ? value(sums, one) : 0);
          const amount = of(found.sums);
          const before = of(found.base);
          const all = of(found.totals.sums);
          const write = (sums: Float64Array | undefined): string => (sums && isKnown(sums, one) ? show(value(sums, one), kind) : "–");
          const hasBoth = isKnown(found.sums, one) && found.base !== undefined && isKnown(found.base, one);
          return (
            <tr key={one} title={help(one, mode)}>
              <th scope="row">{name(one, mode)}</th>
              {isDiff && (
                <td class="number" data-number={`detail ${one} before`} data-value={before}>
                  {write(found.base)}
                </td>
              )}
              <td class="number" title={isKnown(found.sums, one) ? full(amount, kind) : undefined} data-number={`detail ${one}`} data-value={amount}>
                {write(found.sums)}
              </td>
              {isDiff && (
                <td class={`number ${hasBoth && amount > before ? "more" : hasBoth && amount < before ? "fewer" : ""}`} data-number={`detail ${one} change`} data-value={amount - before}>
                  {hasBoth ? signed(amount - before, kind) : "–"}
                </td>
              )}
              {!isDiff && self && (
                <td class="number" data-number={`detail ${one} self`} data-value={of(self)}>
                  {write(self)}
                </td>
              )}
              {!isDiff && <td class="number share-of-all">{isPart(one) && all !== 0 ? percent(amount / all) : ""}</td>}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
};

const StackEntry = ({ stack, open, found, mode, cost, isDiff }: { stack: Stack; open: boolean; found: Found; mode: Mode; cost: Cost; isDiff: boolean }): JSX.Element => {
  const { state, picked } = usePage();
  const isWhole = picked?.isWhole === true;
  const { kind } = COSTS[cost];
  const amount = value(stack.sums, cost) - (stack.base ? value(stack.base, cost) : 0);
  const isThere = isDiff || isKnown(stack.sums, cost);
  const most = isPart(cost) ? largest(cost, found.totals.sums, found.totals.base) : 0;
  const blocks = mode === "moment" ? "live_allocations" : "allocations";
  return (
    <li>
      <details open={open}>
        <summary data-stack={stack.stack} data-whole={isWhole}>
          <b>
            <Num of={`stack ${cost}${isDiff ? " change" : ""}`} value={amount}>
              {isDiff ? signed(amount, kind) : isThere ? show(amount, kind) : "–"}
            </Num>
          </b>{" "}
          {most > 0 && <span class="share">{percent(amount / most)}</span>}{" "}
          <span class="hint">
            {knows(blocks) && (
              <Num of={`stack ${blocks}`} value={value(stack.sums, blocks)}>
                {exact(value(stack.sums, blocks))} {mode === "moment" ? "live" : "allocations"}
              </Num>
            )}
            {mode !== "moment" && value(stack.sums, "live_allocations") > 0 && (
              <Num of="stack live_allocations" value={value(stack.sums, "live_allocations")}>
                , {exact(value(stack.sums, "live_allocations"))} live at the end
              </Num>
            )}
          </span>
        </summary>
        {stack.own && stack.own.bytes > 0 && (
          <p class="hint" data-stack={stack.stack} data-whole={isWhole}>
            <Num of="stack own_peak_bytes" value={stack.own.bytes}>
              own peak {bytes(stack.own.bytes)}
            </Num>{" "}
            <Num of="stack own_peak_time_ns" value={stack.own.time_ns}>
              at {time(stack.own.time_ns)}
            </Num>
            {stack.own.largest > 0 && (
              <Num of="stack size_max" value={stack.own.largest}>
                {" "}
                · largest block {bytes(stack.own.largest)}
              </Num>
            )}
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
    const of = (cost: Cost, text: (amount: string) => string): string[] => (knows(cost) ? [text(exact(value(stack.sums, cost)))] : []);
    const costs = [of("allocations", (amount) => `${amount} allocations`), of("peak_bytes", (amount) => `peak ${amount} B`), of("live_bytes", (amount) => `live at the end ${amount} B`)];
    lines.push("", costs.flat().join(", "));
    for (const frame of stack.levels) lines.push(`  ${nameOf(frame, true)}  ${whole(frame)}`);
  }
  return `${lines.join("\n")}\n`;
};
