// A number with its name and its exact value. `tests/page/crawl.mjs` compares every one of them with the engine's answer for the page's address.
//
// Names: a cost (docs/views.md) is that cost of everything that is looked at. `NAME before` and `NAME change` are of a comparison, `A / B` is a share,
// `A / s` is a rate. A word before the name says what else the number is about: `holder peak_bytes`. Digits that are no number of the trace are a `Label`.
import type { ComponentChildren, JSX } from "preact";

export const Num = ({ of, value, children }: { of: string; value: number; children: ComponentChildren }): JSX.Element => (
  <span data-number={of} data-value={value}>
    {children}
  </span>
);

/** A name or a place that may have digits in it. */
export const Label = ({ children }: { children: ComponentChildren }): JSX.Element => <span data-label="">{children}</span>;
