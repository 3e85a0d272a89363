// Checked by the compiler and never run: the module has the types that ../index.d.ts declares.
import type * as declared from "../index";
import * as own from "./index";

const view: (trace: own.Trace) => ReturnType<declared.Trace["view"]> = (trace) => trace.view("summary", { from: "50%", include: ["a", "b"] }, trace);
const created: Promise<{ open(source: declared.Input, options?: Pick<declared.OpenOptions, "name">): Promise<own.Trace>; memory: number }> = own.Heaptrack.create();
export { created, view };
