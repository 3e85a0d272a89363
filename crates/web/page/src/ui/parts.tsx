// Small components that many views share.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { filtered } from "../state";
import { usePage } from "./context";

export const Chip = ({ text, title, onRemove }: { text: string; title: string; onRemove: () => void }): JSX.Element => (
  <span class="chip" title={title}>
    <span class="chip-text">{text}</span>
    <button type="button" class="chip-x" aria-label={`Remove: ${text}`} onClick={onRemove}>
      ×
    </button>
  </span>
);

export const Problem = ({ text }: { text: string }): JSX.Element => (
  <div class="problem" role="alert">
    {text}
  </div>
);

/** A note in views that show one trace alone although two are compared. */
export const NotCompared = (): JSX.Element | null => {
  const { isDiff, trace, state } = usePage();
  if (!isDiff) return null;
  return (
    <p class="reason" role="note">
      This view cannot compare. It shows {trace.name} {state.compare?.startsWith("@") ? "as it is" : "alone"}.
    </p>
  );
};

/** A report has some answers only for the whole session and all blocks. If something else is selected, a note says so. */
export const WholeOnly = ({ what, isTimeless = false }: { what: string; isTimeless?: boolean }): JSX.Element | null => {
  const { status, mode, state } = usePage();
  if (!status.report || ((isTimeless || mode === "session") && !filtered(state))) return null;
  return (
    <p class="reason" role="note">
      A report has {what} only for the whole session and all blocks. For a range or a filter, open the trace with <code>heaptrack analyze</code>.
    </p>
  );
};

export const Empty = ({ children }: { children: ComponentChildren }): JSX.Element => <div class="empty">{children}</div>;

/** A text in which the first occurrence of `search` is marked. */
export const Marked = ({ text, search }: { text: string; search: string }): JSX.Element => {
  const at = search ? text.toLowerCase().indexOf(search.toLowerCase()) : -1;
  if (at < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + search.length)}</mark>
      {text.slice(at + search.length)}
    </>
  );
};

/** `number`: the name and value of the number in its text. */
export type Choice<T extends string> = { value: T; text: string; title?: string; number?: [string, number] };

/** Choices whose text is their value. */
export const plain = <T extends string>(...values: T[]): Choice<T>[] => values.map((value) => ({ value, text: value }));

/** A choice of one value: a row of buttons. */
export const Choices = <T extends string>({ label, value, choices, onChange }: { label: string; value: T; choices: Choice<T>[]; onChange: (value: T) => void }): JSX.Element => (
  <div class="choices" role="group" aria-label={label}>
    {choices.map((choice) => (
      <button
        key={choice.value}
        type="button"
        class={choice.value === value ? "choice on" : "choice"}
        aria-pressed={choice.value === value}
        title={choice.title}
        data-number={choice.number?.[0]}
        data-value={choice.number?.[1]}
        onClick={() => onChange(choice.value)}
      >
        {choice.text}
      </button>
    ))}
  </div>
);

export const Pick = <T extends string>({ label, value, choices, onChange }: { label: string; value: T; choices: Choice<T>[]; onChange: (value: T) => void }): JSX.Element => (
  <label class="pick">
    <span>{label}</span>
    <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
      {choices.map((choice) => (
        <option key={choice.value} value={choice.value} title={choice.title}>
          {choice.text}
        </option>
      ))}
    </select>
  </label>
);

/** The buttons that save a drawing as a file. */
export const SaveButtons = ({ onSave }: { onSave: (form: "svg" | "png") => void }): JSX.Element => (
  <>
    <button type="button" class="button" onClick={() => onSave("svg")}>
      SVG
    </button>
    <button type="button" class="button" onClick={() => onSave("png")}>
      PNG
    </button>
  </>
);

/** A list of traces to choose from. `open`: the one that is shown, if the list has it. */
export const TraceList = ({ traces, className, open, onChoose }: { traces: { index: number; name: string }[]; className: string; open?: number; onChoose: (index: number) => void }): JSX.Element => (
  <ul class={className}>
    {traces.map(({ index, name }) => (
      <li key={index}>
        <button type="button" class="link" aria-current={open === undefined ? undefined : index === open} onClick={() => onChoose(index)}>
          {name}
        </button>
        {index === open && " (open)"}
      </li>
    ))}
  </ul>
);

export const Switch = ({ text, title, on, onChange }: { text: string; title?: string; on: boolean; onChange: (on: boolean) => void }): JSX.Element => (
  <label class="switch" title={title}>
    <input type="checkbox" checked={on} onChange={(event) => onChange(event.currentTarget.checked)} />
    <span>{text}</span>
  </label>
);

/** A button that opens a sheet below it. Esc and a click elsewhere close the sheet. */
export const Menu = ({ text, title, children, className }: { text: string; title: string; children: (close: () => void) => ComponentChildren; className?: string }): JSX.Element => {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: Event): void => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      setOpen(false);
      place.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    place.current?.addEventListener("keydown", escape);
    const node = place.current;
    node?.querySelector<HTMLElement>(".sheet input, .sheet button, .sheet select, .sheet textarea")?.focus();
    return () => {
      document.removeEventListener("pointerdown", outside);
      node?.removeEventListener("keydown", escape);
    };
  }, [open]);
  return (
    <div class={`menu ${className ?? ""}`} ref={place}>
      <button type="button" class="button" title={title} aria-expanded={open} aria-haspopup="dialog" onClick={() => setOpen(!open)}>
        {text}
      </button>
      {open && (
        <div class="sheet" role="dialog" aria-label={title}>
          {children(() => setOpen(false))}
        </div>
      )}
    </div>
  );
};

/** A dialog over the page. */
export const Dialog = ({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element => {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    place.current?.showModal();
  }, []);
  return (
    <dialog ref={place} class="dialog" aria-label={title} onClose={onClose} onCancel={onClose}>
      <div class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </div>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
};

export const copy = async (text: string): Promise<boolean> => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
};

export const download = (name: string, content: Blob | string, type = "text/plain"): void => {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};

/** The size of an element. It is updated whenever it changes. */
export const useSize = (place: { current: HTMLElement | null }): { width: number; height: number } => {
  const [size, set] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const node = place.current;
    if (!node) return undefined;
    const observer = new ResizeObserver(() => set({ width: node.clientWidth, height: node.clientHeight }));
    observer.observe(node);
    set({ width: node.clientWidth, height: node.clientHeight });
    return () => observer.disconnect();
  }, []);
  return size;
};

/** A bar that moves the border between two panes; arrow keys work, too. */
export const Splitter = ({ label, onMove, vertical }: { label: string; onMove: (delta: number) => void; vertical: boolean }): JSX.Element => {
  const start = useRef<number | undefined>(undefined);
  return (
    // biome-ignore lint: a separator that takes focus is a window splitter
    <div
      class={vertical ? "splitter vertical" : "splitter"}
      role="separator"
      aria-orientation={vertical ? "vertical" : "horizontal"}
      aria-label={label}
      aria-valuenow={50}
      tabIndex={0}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        start.current = vertical ? event.clientX : event.clientY;
      }}
      onPointerMove={(event) => {
        if (start.current === undefined) return;
        const now = vertical ? event.clientX : event.clientY;
        onMove(now - start.current);
        start.current = now;
      }}
      onPointerUp={() => {
        start.current = undefined;
      }}
      onKeyDown={(event) => {
        const back = vertical ? "ArrowLeft" : "ArrowUp";
        const on = vertical ? "ArrowRight" : "ArrowDown";
        if (event.key === back) onMove(-24);
        else if (event.key === on) onMove(24);
        else return;
        event.preventDefault();
      }}
    />
  );
};

export const dark = (): boolean => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/** Canvas colours that follow the theme. */
export const ink = (): { text: string; faint: string; line: string; paper: string } =>
  dark() ? { text: "#e6e9ef", faint: "#9aa4b5", line: "#2b3342", paper: "#171c26" } : { text: "#1a2233", faint: "#5c677a", line: "#e4e8ef", paper: "#ffffff" };
