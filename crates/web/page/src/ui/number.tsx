// A number with its name and its exact value. `tests/page/crawl.mjs` compares every one of them with the engine's answer for the page's address.
//
// Names: a cost (docs/views.md) is the total of that cost for what is shown. `NAME before` and `NAME change` belong to a comparison, `A / B` is a share,
// `A / s` is a rate. A word before the name says what the number is about: `holder peak_bytes`. Digits that are not a number of the trace are a `Label`.
import type { ComponentChildren, JSX } from "preact";

export const Num = ({ of, value, children }: { of: string; value: number; children: ComponentChildren }): JSX.Element => (
  <span data-number={of} data-value={value}>
    {children}
  </span>
);

/** A name or a place that may contain digits. */
export const Label = ({ children }: { children: ComponentChildren }): JSX.Element => <span data-label="">{children}</span>;
