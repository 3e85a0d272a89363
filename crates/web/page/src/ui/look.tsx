// How stacks are shown: which levels, what is merged, which names; and the text filter.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { change, current } from "../store";
import { usePage } from "./context";
import { isRegex, refusalOf } from "./refusal";
import { Choices, Pick, Switch, plain } from "./parts";

export const LookTools = (): JSX.Element => {
  const { state, look } = usePage();
  return (
    <>
      <Choices
        label="Whose code is shown"
        value={look.levels}
        choices={[
          { value: "mine", text: "my code", title: "Show only frames in your own code. The costs of functions that they call are added to them" },
          { value: "all", text: "all code", title: "Show all frames, also of libraries and of the language" },
        ]}
        onChange={(levels) => change({ levels })}
      />
      <Pick
        label="merge by"
        value={state.merge}
        choices={plain("function", "line", "namespace", "module")}
        onChange={(merge) => change({ merge })}
      />
      <Switch text="full names" title="Show template arguments and parameters" on={state.full} onChange={(full) => change({ full })} />
    </>
  );
};

const KINDS = ["any", "function", "file", "module"] as const;
type Kind = (typeof KINDS)[number];

/** The text of the first filter, which is marked in names. */
export const firstText = (include: string[]): string => {
  const text = (include[0] ?? "").replace(/^(function|file|module):/, "");
  return text.startsWith("/") ? "" : text;
};

/** The text filter. Costs are computed again while the user types, for matching stacks only. */
export const QuickFilter = (): JSX.Element => {
  const { state, trace, status } = usePage();
  const first = state.include[0] ?? "";
  const kindOf = (/^(function|file|module):/.exec(first)?.[1] ?? "any") as Kind;
  const [kind, setKind] = useState<Kind>(kindOf);
  const [text, setText] = useState(first.replace(/^(function|file|module):/, ""));
  // Typing changes the state after a short delay. A change of the state from elsewhere (Back, a removed chip) cancels that.
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  // The reason why the typed text is not a filter. The last valid filter stays in force.
  const [bad, setBad] = useState<string | undefined>(undefined);
  const typed = useRef("");
  useEffect(() => {
    clearTimeout(timer.current);
    setBad(undefined);
    setText(first.replace(/^(function|file|module):/, ""));
    if (first) setKind(kindOf);
  }, [first]);
  const apply = async (words: string, of: Kind): Promise<void> => {
    const wanted = words === "" ? "" : of === "any" ? words : `${of}:${words}`;
    const next = { include: [...(wanted ? [wanted] : []), ...current().include.slice(1)] };
    const reason = isRegex(wanted) ? await refusalOf({ ...current(), ...next }, trace, status.report !== null) : undefined;
    if (typed.current !== words) return;
    setBad(reason);
    if (reason === undefined) change(next, "replace");
  };
  const soon = (words: string, of: Kind): void => {
    setText(words);
    setKind(of);
    typed.current = words;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void apply(words, of), 180);
  };
  return (
    <span class="filter" role="search">
      <select aria-label="What the filter searches" value={kind} onChange={(event) => soon(text, event.currentTarget.value as Kind)}>
        <option value="any">any</option>
        <option value="function">function</option>
        <option value="file">file</option>
        <option value="module">module</option>
      </select>
      <input
        type="search"
        placeholder="filter… or /regex/"
        aria-label="Filter stacks"
        aria-invalid={bad !== undefined}
        title={bad}
        value={text}
        onInput={(event) => soon(event.currentTarget.value, kind)}
        data-key="/"
      />
      {bad !== undefined && (
        <span class="bad" role="status">
          {bad}
        </span>
      )}
    </span>
  );
};
