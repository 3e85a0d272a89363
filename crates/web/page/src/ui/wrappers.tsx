// The functions that count as a part of the allocator, so that their callers own the memory (docs/blame.md).
import type { JSX } from "preact";
import type { State } from "../state";
import { change } from "../store";
import { exact, several } from "../units";
import type { Wrapper } from "../work/stacks";
import { usePage } from "./context";

const REASONS: Record<Wrapper["reason"], string> = { name: "by its name", numbers: "by its numbers", rule: "by a rule", query: "by you" };

const without = (list: string[], name: string): string[] => list.filter((other) => other !== name);

/** The change that makes a function a part of the allocator. */
export const treated = (state: State, name: string): Partial<State> => ({ wrapper: [...new Set([...state.wrapper, name])], "not-wrapper": without(state["not-wrapper"], name) });

/** The change that makes it an ordinary function again. */
const undone = (state: State, { function: name, reason }: Wrapper): Partial<State> =>
  reason === "query" ? { wrapper: without(state.wrapper, name ?? "") } : { "not-wrapper": [...new Set([...state["not-wrapper"], name ?? ""])] };

export const Wrappers = ({ list }: { list: Wrapper[] }): JSX.Element | null => {
  const { state, status } = usePage();
  if (list.length === 0) return null;
  return (
    <details class="card suppressions wrappers">
      <summary>
        <h2>Counted as the allocator</h2> <span class="hint">{several(list.length, "wrapper")}; the caller owns the memory</span>
      </summary>
      <table class="plain-table">
        <thead>
          <tr>
            <th>Function</th>
            <th class="number">Stacks</th>
            <th class="number">Callers</th>
            <th class="number">Sizes</th>
            <th>Found</th>
            {!status.report && <th>Undo</th>}
          </tr>
        </thead>
        <tbody>
          {list.map((row) => (
            <tr key={`${row.function} ${row.module}`}>
              <td title={`${row.function}\n${row.module ?? ""}`}>
                <code>{row.short ?? row.function}</code>
              </td>
              <td class="number">{exact(row.stacks)}</td>
              <td class="number">{exact(row.callers)}</td>
              <td class="number">{exact(row.sizes)}</td>
              <td>{REASONS[row.reason]}</td>
              {!status.report && (
                <td>
                  <button type="button" class="link" aria-label={`${row.short ?? row.function} is no wrapper`} onClick={() => change(undone(state, row))}>
                    not a wrapper
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
};
