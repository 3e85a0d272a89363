// The menu that chooses the base of a comparison, and how it is scaled.
import type { JSX } from "preact";
import { isOtherTrace } from "../state";
import { change } from "../store";
import { opened, usePage } from "./context";
import { Menu, Pick, TraceList } from "./parts";

/** How the base can be scaled. `text` is shown in the choice and in the header, `told` in the card "What changed". */
export const NORMALS = {
  no: { text: "as recorded", told: "" },
  second: { text: "per second", told: "per second" },
  allocation: { text: "per allocation", told: "per 1,000 allocations" },
  share: { text: "share of the total", told: "as a share of the total" },
} as const;

export const CompareMenu = (): JSX.Element => {
  const { state, status } = usePage();
  const others = [...opened(status), ...status.beside].filter(({ index }) => index !== state.file);
  const isFile = isOtherTrace(state.compare);
  return (
    <Menu text="Compare…" title="Compare with another trace or another moment">
      {(close) => (
        <>
          <p>
            <b>Two moments:</b> click one in the timeline, then shift-click the other.
          </p>
          {state.at !== undefined && (
            <button
              type="button"
              class="button"
              onClick={() => {
                change({ compare: "@0" });
                close();
              }}
            >
              with the start
            </button>
          )}
          {others.length > 0 && !status.report ? (
            <>
              <p>
                <b>Another trace:</b>
              </p>
              <TraceList
                traces={others}
                className="plain-list"
                onChoose={(index) => {
                  change({ compare: String(index), runs: [] });
                  close();
                }}
              />
            </>
          ) : (
            <p class="hint">Another trace: start with <code>heaptrack analyze FILE --compare BASE</code>.</p>
          )}
          {isFile && <Scale />}
          {isFile && <Runs others={others.filter(({ index }) => index !== Number(state.compare))} />}
          {state.compare !== undefined && (
            <button
              type="button"
              class="button"
              onClick={() => {
                change({ compare: undefined, runs: [] });
                close();
              }}
            >
              Stop comparing
            </button>
          )}
        </>
      )}
    </Menu>
  );
};

export const Scale = (): JSX.Element => {
  const { state } = usePage();
  const choices = (Object.keys(NORMALS) as (keyof typeof NORMALS)[]).map((value) => ({ value, text: NORMALS[value].text }));
  return <Pick label="compare" value={state.normalise} choices={choices} onChange={(normalise) => change({ normalise })} />;
};

/** More traces with the same base. They show whether a change is larger than the usual difference between runs. */
const Runs = ({ others }: { others: { index: number; name: string }[] }): JSX.Element => {
  const { state } = usePage();
  if (others.length === 0) return <></>;
  return (
    <fieldset>
      <legend>More runs, compared to the same base</legend>
      {others.map(({ index, name }) => (
        <label key={index} class="switch">
          <input
            type="checkbox"
            checked={state.runs.includes(index)}
            onChange={(event) => change({ runs: event.currentTarget.checked ? [...state.runs, index] : state.runs.filter((run) => run !== index) })}
          />
          <span>{name}</span>
        </label>
      ))}
    </fieldset>
  );
};
