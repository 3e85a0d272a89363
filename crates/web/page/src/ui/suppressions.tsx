// The suppressions that matched, and how much they hide.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { bytes, exact } from "../units";
import { usePage } from "./context";
import { useRaw } from "./raw";

type Row = { pattern: string; source: string; matches: number; leaked_bytes: number; leaked_allocations: number };

export const Suppressions = (): JSX.Element | null => {
  const { ask } = usePage();
  const [all, setAll] = useState(false);
  const answer = useRaw("suppressions", ask.query);
  const rows = ((answer.value?.suppressions as Row[] | undefined) ?? []).slice().sort((a, b) => b.leaked_bytes - a.leaked_bytes || b.matches - a.matches);
  if (rows.length === 0) return null;
  const matched = rows.filter((row) => row.matches > 0);
  const shown = all ? rows : matched;
  return (
    <details class="card suppressions" open={matched.length > 0}>
      <summary>
        <h2>Suppressions</h2> <span class="hint">{matched.length} of {rows.length} matched</span>
      </summary>
      <table class="plain-table">
        <thead>
          <tr>
            <th class="number">Matches</th>
            <th class="number">Leaked</th>
            <th class="number">Blocks</th>
            <th>Pattern</th>
            <th>From</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={`${row.source} ${row.pattern}`}>
              <td class="number">{exact(row.matches)}</td>
              <td class="number">{bytes(row.leaked_bytes)}</td>
              <td class="number">{exact(row.leaked_allocations)}</td>
              <td>
                <code>{row.pattern}</code>
              </td>
              <td>{row.source}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <button type="button" class="link" onClick={() => setAll(!all)}>
        {all ? "only those that matched" : `all ${rows.length}`}
      </button>
    </details>
  );
};
