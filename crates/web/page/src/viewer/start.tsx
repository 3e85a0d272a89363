// What the viewer shows before a trace is open, and how files are opened and closed.
import type { JSX } from "preact";
import { ask } from "../client";
import { INITIAL, isOtherTrace } from "../state";
import { change, current } from "../store";
import { usePage } from "../ui/context";
import { tracesChanged } from "../ui/extras";

/** Opens files, and shows the first of them. */
export const add = async (files: File[]): Promise<void> => {
  const numbers = await Promise.all(files.map((file) => ask("add", { file })));
  const [first] = numbers;
  if (first === undefined) return;
  const { view, levels, file, compare } = current();
  if (first > 0) change({ ...INITIAL, view, levels, file: first });
  else {
    // The first files are shown as the address says, for example a link to a view. A comparison with a file that is not open is left out.
    const isThere = numbers.includes(file) && (!isOtherTrace(compare) || numbers.includes(Number(compare)));
    change(isThere ? { file } : { file: 0, runs: [], ...(isOtherTrace(compare) ? { compare: undefined } : {}) });
  }
  tracesChanged();
};

export const cancel = async (trace: number): Promise<void> => {
  await ask("remove", { trace });
  if (trace > 0) change({ file: trace - 1 });
  tracesChanged();
};

export const Chooser = ({ onChosen }: { onChosen: () => void }): JSX.Element => (
  <p>
    <label>
      open a file{" "}
      <input
        type="file"
        multiple
        onChange={(event) => {
          void add([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
          onChosen();
        }}
      />
    </label>{" "}
    <span class="hint">or drop it anywhere on this page. Nothing leaves your browser.</span>
  </p>
);

/** Chooses a file of rules (`--rules`). It replaces the rules that were there before. */
export const Rules = ({ onChosen }: { onChosen: () => void }): JSX.Element => {
  const { say, refresh } = usePage();
  const choose = async (file: File): Promise<void> => {
    try {
      await ask("rules", { file });
      say(`Your own code is now what ${file.name} says.`);
      refresh();
    } catch (error) {
      say((error as Error).message);
    }
  };
  return (
    <>
      <p>
        <b>Your own code</b> <span class="hint">a file for --rules: lines of CLASS SUBJECT PATTERN</span>
      </p>
      <label>
        use a file{" "}
        <input
          type="file"
          accept=".txt,.rules,text/plain"
          onChange={(event) => {
            const file = event.currentTarget.files?.[0];
            if (file) void choose(file);
            onChosen();
          }}
        />
      </label>
    </>
  );
};

export const Start = (): JSX.Element => (
  <main class="lonely">
    <h1>heaptrack</h1>
    <p>Drop a trace here, or choose one. Drop two to compare them.</p>
    <Chooser onChosen={() => undefined} />
    <p class="hint">
      Traces of heaptrack (<code>.htz</code>) and of KDE's heaptrack (<code>.zst</code>, <code>.gz</code>), and heap profiles of pprof, DHAT, massif, gperftools and jemalloc.
    </p>
    <p class="hint">Nothing leaves your browser. This page contains everything that it needs, and its content security policy forbids every request to a network.</p>
  </main>
);
