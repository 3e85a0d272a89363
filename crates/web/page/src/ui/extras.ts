// What only the viewer has (src/viewer). Empty on a page of a server and in a report.
import type { JSX } from "preact";

export const extras: {
  /** What is shown while no trace is open. */
  start?: () => JSX.Element;
  /** A control that opens a file, and a sentence about where its data goes. */
  chooser?: (onChosen: () => void) => JSX.Element;
  /** A control that reads a file of rules, which say what the user's own code is. A server gets them from its command line. */
  rules?: (onChosen: () => void) => JSX.Element;
  /** Stops reading a trace and forgets it. */
  cancel?: (trace: number) => void;
} = {};

/** Tells the page that traces were opened or closed. */
export const tracesChanged = (): boolean => dispatchEvent(new Event("heaptrack-traces"));
