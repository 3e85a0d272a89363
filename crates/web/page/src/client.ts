// The page's side of its worker.
import type { Carried } from "./viewer/source";
import type { Message, Op, Reply, Requests } from "./work/protocol";
import type { ReportData } from "./work/report";

let worker: Worker | undefined;
let next = 1;
const waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();

export const start = (script: string | URL, opens: { base: string } | { report: ReportData } | { engine: ArrayBuffer; carried: Carried | undefined }): void => {
  worker = new Worker(script);
  worker.onmessage = ({ data }: MessageEvent<Reply>) => {
    const entry = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error === undefined) entry?.resolve(data.result);
    else entry?.reject(new Error(data.error));
  };
  worker.postMessage({ open: opens });
};

export const ask = <O extends Op>(op: O, args: Requests[O]["args"]): Promise<Requests[O]["result"]> =>
  new Promise((resolve, reject) => {
    const id = next++;
    waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
    worker?.postMessage({ id, op, args } satisfies Message);
  });

/** Returns the number of requests that have no answer yet. Tests wait until it is 0. */
declare global {
  interface Window {
    heaptrackWaiting?: () => number;
  }
}
window.heaptrackWaiting = () => waiting.size;
