// What a page that is one file carries: its worker, and packed data.

/** Letters of base64 that are decoded at once: a multiple of 4. */
const PIECE = 1 << 22;

/** The data in an element: base64. */
export const decode = (element: HTMLElement): Blob => {
  const text = (element.textContent ?? "").trim();
  const pieces: BlobPart[] = [];
  for (let at = 0; at < text.length; at += PIECE) pieces.push(Uint8Array.from(atob(text.slice(at, at + PIECE)), (letter) => letter.charCodeAt(0)));
  return new Blob(pieces);
};

/** The data in an element: base64 of gzip. */
export const unpack = async (element: HTMLElement): Promise<Response> => new Response(decode(element).stream().pipeThrough(new DecompressionStream("gzip")));

/** A page from disk cannot load a second script, so the worker is included as text. */
export const carriedWorker = (): string => {
  const script = document.getElementById("report-worker")?.textContent ?? "";
  return URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
};
