// The state of the page, and the hooks with which components follow it.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { ask } from "./client";
import { type State, format, parse } from "./state";
import type { Op, Requests } from "./work/protocol";

let state = parse(location.hash);
const listeners = new Set<() => void>();
const tell = (): void => {
  for (const listener of listeners) listener();
};

addEventListener("hashchange", () => {
  const next = parse(location.hash);
  if (format(next) === format(state)) return;
  state = next;
  tell();
});

export const current = (): State => state;

/** `replace`: makes no new step in the browser's history, for example while the user drags or types. */
export const change = (what: Partial<State>, how: "push" | "replace" = "push"): void => {
  const next = { ...state, ...what };
  const address = format(next);
  if (address === format(state)) return;
  state = next;
  if (how === "push") location.hash = address;
  else history.replaceState(null, "", address);
  tell();
};

export const useChange = (): State => {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    listeners.add(again as () => void);
    return () => void listeners.delete(again as () => void);
  }, []);
  return state;
};

export type Answered<T> = { value: T | undefined; error: string | undefined; busy: boolean };

/** Sends a request again when `deps` change. The old answer stays until the new one arrives, so that nothing flickers. */
export const useAnswer = <T>(make: () => Promise<T> | undefined, deps: unknown[]): Answered<T> => {
  const [answer, set] = useState<Answered<T>>({ value: undefined, error: undefined, busy: true });
  const latest = useRef(0);
  // The answer is marked as busy in the same rendering in which `deps` change. An effect would mark it only after the old answer has been drawn as if it were
  // current.
  const wanted = JSON.stringify(deps);
  const asked = useRef(wanted);
  useEffect(() => {
    const mine = ++latest.current;
    asked.current = wanted;
    const promise = make();
    if (!promise) {
      set({ value: undefined, error: undefined, busy: false });
      return;
    }
    set((old) => ({ ...old, busy: true }));
    promise.then(
      (value) => mine === latest.current && set({ value, error: undefined, busy: false }),
      (error: Error) => mine === latest.current && set({ value: undefined, error: error.message, busy: false }),
    );
  }, deps);
  return asked.current === wanted ? answer : { ...answer, busy: true };
};

export const useAsk = <O extends Op>(op: O, args: Requests[O]["args"] | undefined): Answered<Requests[O]["result"]> =>
  useAnswer(() => (args === undefined ? undefined : ask(op, args)), [op, JSON.stringify(args)]);

/** Preferences are kept in the browser's storage, if there is one. */
export const remember = (name: string, value: unknown): void => {
  try {
    localStorage.setItem(`heaptrack.${name}`, JSON.stringify(value));
  } catch {
    // A page from disk may have no storage.
  }
};
export const recall = <T>(name: string, otherwise: T): T => {
  try {
    const text = localStorage.getItem(`heaptrack.${name}`);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
};
export const usePreference = <T>(name: string, otherwise: T): [T, (value: T) => void] => {
  const [value, set] = useState<T>(() => recall(name, otherwise));
  return [
    value,
    (next) => {
      set(next);
      remember(name, next);
    },
  ];
};

/** What the details are about. It is not in the address, because it refers to rows on the screen. */
export type { Selection } from "./work/protocol";
