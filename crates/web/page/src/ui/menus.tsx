// The menus for filters, traces and exports, and the help.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask } from "../client";
import { format } from "../state";
import { change, recall, remember } from "../store";
import { several, time } from "../units";
import { isProfile, opened, usePage } from "./context";
import { useRaw } from "./raw";
import { EDITORS, filled } from "./editor";
import { extras } from "./extras";
import { threadName } from "./lanes";
import { Dialog, Menu, Pick, Problem, TraceList, copy, download } from "./parts";
import { refusalOf } from "./refusal";
import { template } from "./editor";

export const FilterMenu = (): JSX.Element => {
  const { status } = usePage();
  return (
    <Menu text="+ filter" title="Add a filter">
      {(close) => <FilterForm onDone={close} isReport={status.report !== null} />}
    </Menu>
  );
};

const FilterForm = ({ onDone, isReport }: { onDone: () => void; isReport: boolean }): JSX.Element => {
  const { state, trace } = usePage();
  const [bad, setBad] = useState<string | undefined>(undefined);
  const [how, setHow] = useState<"include" | "exclude">("include");
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  const [size, setSize] = useState(state.size ?? "");
  const [lifetime, setLifetime] = useState(state.lifetime ?? "");
  const [thread, setThread] = useState("");
  const [process, setProcess] = useState("");
  const [allocator, setAllocator] = useState("");
  // A report cannot select blocks, and a heap profile of another tool has none.
  const hasBlocks = !isReport && !isProfile(trace);
  const threads = useRaw(hasBlocks ? "threads" : undefined, "").value?.threads as { index: number; tid: number | null; name: string | null }[] | undefined;
  const apply = async (event: Event): Promise<void> => {
    event.preventDefault();
    const pattern = kind ? `${kind}:${text}` : text;
    const next = {
      ...(text ? { [how]: [...state[how], pattern] } : {}),
      size: size || undefined,
      lifetime: lifetime || undefined,
      ...(thread !== "" ? { thread: [...new Set([...state.thread, Number(thread)])] } : {}),
      ...(allocator !== "" ? { allocator: [...new Set([...state.allocator, allocator])] } : {}),
      ...(process !== "" ? { process: [...new Set([...state.process, process])] } : {}),
    };
    const reason = await refusalOf({ ...state, ...next }, trace, isReport);
    setBad(reason);
    if (reason !== undefined) return;
    change(next);
    onDone();
  };
  return (
    <form onSubmit={apply}>
      <fieldset>
        <legend>Stacks</legend>
        <select aria-label="With or without" value={how} onChange={(event) => setHow(event.currentTarget.value as "include" | "exclude")}>
          <option value="include">only with</option>
          <option value="exclude">without</option>
        </select>
        <select aria-label="Where to search" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="">function, file or module</option>
          <option value="function">function</option>
          <option value="file">file</option>
          <option value="module">module</option>
        </select>
        <input type="text" aria-label="Text or /regular expression/" placeholder="text or /regex/" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </fieldset>
      {hasBlocks && (
        <fieldset>
          <legend>Blocks</legend>
          <label>
            size <input type="text" placeholder="1k..1M" value={size} onInput={(event) => setSize(event.currentTarget.value)} />
          </label>
          <label>
            lived <input type="text" placeholder="..1ms" value={lifetime} onInput={(event) => setLifetime(event.currentTarget.value)} />
          </label>
          <label>
            thread{" "}
            <select value={thread} onChange={(event) => setThread(event.currentTarget.value)}>
              <option value="">any</option>
              {threads?.map((one) => (
                <option key={one.index} value={String(one.index)}>
                  {threadName(one)}
                </option>
              ))}
            </select>
          </label>
          {(trace.session?.allocators.length ?? 0) > 1 && (
            <label>
              allocator{" "}
              <select value={allocator} onChange={(event) => setAllocator(event.currentTarget.value)}>
                <option value="">any</option>
                {trace.session?.allocators.map((name) => (
                  <option key={name} value={name}>
                    {name}
                  </option>
                ))}
              </select>
            </label>
          )}
          {(trace.session?.processes ?? 0) > 0 && (
            <label>
              process <input type="text" placeholder="pid or name" value={process} onInput={(event) => setProcess(event.currentTarget.value)} />
            </label>
          )}
        </fieldset>
      )}
      {bad !== undefined && <Problem text={bad} />}
      <p class="hint">All costs are computed again, for matching blocks only.</p>
      <button type="submit" class="button primary">
        Apply
      </button>
    </form>
  );
};

export const OpenMenu = (): JSX.Element => {
  const { state, status, say, refresh } = usePage();
  const all = [...opened(status), ...status.beside];
  return (
    <Menu text="Open…" title="Open another trace, choose suppressions and the editor">
      {(close) => (
        <>
          <p>
            <b>Traces</b> <span class="hint">{extras.chooser ? "that you opened" : "from the command line, or in the same folder"}</span>
          </p>
          {extras.chooser?.(close)}
          <TraceList
            traces={all}
            className="plain-list traces"
            open={state.file}
            onChoose={(index) => {
              change({ file: index, at: undefined, from: undefined, to: undefined, zoom: "", zoomFrom: undefined, zoomTo: undefined, fn: undefined, src: undefined, compare: undefined, runs: [], domain: "malloc" });
              close();
            }}
          />
          <p>
            <b>Suppressions</b> <span class="hint">LeakSanitizer's format: lines of leak:NAME</span>
          </p>
          <label class="switch">
            <input type="checkbox" checked={state.suppressions} onChange={(event) => change({ suppressions: event.currentTarget.checked })} />
            <span>use suppressions (built-in, embedded in the program, from files)</span>
          </label>
          <label>
            add a file{" "}
            <input
              type="file"
              accept=".txt,.supp,text/plain"
              onChange={async (event) => {
                const file = event.currentTarget.files?.[0];
                if (!file) return;
                try {
                  const { added } = (await ask("suppress", { text: await file.text() })) as { added: number };
                  say(`${several(added, "suppression")} added.`);
                  refresh();
                } catch (error) {
                  say((error as Error).message);
                }
                close();
              }}
            />
          </label>
          {extras.rules?.(close)}
          <p>
            <b>Editor</b>
          </p>
          <Editor />
        </>
      )}
    </Menu>
  );
};

const Editor = (): JSX.Element => {
  const [name, setName] = useState(() => recall<string>("editor", "vscode"));
  const [custom, setCustom] = useState(() => recall("editor.custom", "mycommand %f +%l:%c"));
  useEffect(() => {
    remember("editor", name);
    remember("editor.custom", custom);
  }, [name, custom]);
  return (
    <>
      <Pick label="open sources with" value={name} choices={Object.entries(EDITORS).map(([value, [text]]) => ({ value, text }))} onChange={setName} />
      {name === "custom" && (
        <label>
          %f file, %l line, %c column
          <input type="text" value={custom} onInput={(event) => setCustom(event.currentTarget.value)} />
        </label>
      )}
      <p class="hint">
        <code>{filled(name === "custom" ? custom : template(), "/src/main.cpp", 42)}</code>
      </p>
    </>
  );
};

export const ExportMenu = (): JSX.Element => {
  const { ask: about, look, cost, trace, say, status, state } = usePage();
  const save = async (form: "csv" | "json" | "folded"): Promise<void> => {
    const text = await ask("text", { ask: about, look, format: form, cost });
    download(`${trace.name}.${form === "folded" ? "folded.txt" : form}`, text);
  };
  return (
    <Menu text="Export" title="Save the data that is shown">
      {(close) => {
        const item = (text: string, action: () => unknown): JSX.Element => (
          <li>
            <button
              type="button"
              class="link"
              onClick={() => {
                void action();
                close();
              }}
            >
              {text}
            </button>
          </li>
        );
        return (
          <ul class="plain-list">
            {item("Functions as CSV", () => save("csv"))}
            {item("Stacks as JSON", () => save("json"))}
            {item("Folded stacks (flamegraph.pl, speedscope)", () => save("folded"))}
            {item("Copy a link to this view", async () => {
              const link = `${location.origin}${location.pathname}${format(state)}`;
              await copy(link);
              say(`Copied: ${link}`);
            })}
            {status.can_save && (
              <li>
                <a class="link" href={`report?trace=${state.file}`} download onClick={() => close()}>
                  Save as one HTML file
                </a>
              </li>
            )}
            {!status.report && (
              <li class="hint">
                The same on the command line: <code>heaptrack report {trace.name} -o out.html</code>
              </li>
            )}
          </ul>
        );
      }}
    </Menu>
  );
};

const KEYS: [string, string][] = [
  ["1 … 9", "the first nine views, in the order of the tabs"],
  ["/", "filter or search"],
  ["Esc", "close details, clear zoom"],
  ["Alt + ← →", "back and forward"],
  ["?", "this help"],
  ["m", "switch between my code and all code"],
  ["p", "show what was live at the peak"],
  ["t", "go to the timeline: arrows move, Enter selects a moment, Shift+arrows select a range"],
  ["In tables", "arrows, Page, Home, End; ↑ in the first row goes to the column heads, where ← → choose a column and Enter sorts by it; → ← expand and collapse; * expands all below; H expands the most expensive path; Enter shows callers; Ctrl+C copies the row"],
  ["In the chart of Memory", "← → Home End select an instant, H the highest one; Enter shows the callers of its live blocks; Esc clears"],
  ["In the flame graph", "arrows move, Enter zooms, Space shows details, Esc shows all"],
];

export const HelpDialog = ({ onClose }: { onClose: () => void }): JSX.Element => {
  const { runtime } = usePage();
  return (
    <Dialog title="Help" onClose={onClose}>
      <h3>How to find …</h3>
      <dl>
        <dt>what fills memory</dt>
        <dd>“Held at the peak” on the Summary. Click the peak in the timeline to see what was live then. The flame graph shows which calls led there.</dd>
        <dt>a leak</dt>
        <dd>“Not freed: leak or not?” on the Summary. A place that <b>grows</b> is probably a leak; one that <b>levelled off</b> is probably a cache. The Leaks view has the counts and the reason.</dd>
        <dt>needless allocations</dt>
        <dd>“Most allocations” on the Summary: look for many calls with a short mean life. Temporary blocks are freed before the next allocation. The Lifetimes view shows all lifetimes.</dd>
        <dt>why RSS is larger than the heap</dt>
        <dd>The Memory view shows what the resident memory consists of at each instant: live blocks, memory that the allocator keeps, mappings, stacks and files.</dd>
        <dt>what happened between two moments</dt>
        <dd>Drag over the timeline (0 to {time(runtime)}). Every number is then about that range.</dd>
      </dl>
      <h3>Words</h3>
      <dl>
        <dt>Peak</dt>
        <dd>held when the whole heap was at its largest</dd>
        <dt>Leaked</dt>
        <dd>not freed until the end, without suppressed leaks</dd>
        <dt>Growth</dt>
        <dd>live at the end of a range minus live at its start</dd>
        <dt>Kept</dt>
        <dd>allocated in a range and not freed in it</dd>
        <dt>Self</dt>
        <dd>allocated by the function itself, not by functions that it calls</dd>
      </dl>
      <p class="hint">Units are powers of 1000: 1 kB = 1000 B.</p>
      <h3>Keys</h3>
      <table class="plain-table keys">
        <tbody>
          {KEYS.map(([key, text]) => (
            <tr key={key}>
              <th scope="row">
                <kbd>{key}</kbd>
              </th>
              <td>{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
};
