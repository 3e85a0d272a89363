// Reads everything that the page shows, in one call. It runs in the browser, so it may use nothing from this file's scope.
export const seen = () => {
  const list = (selector, of, root = document) => [...root.querySelectorAll(selector)].map(of);
  const isShown = (node) => node.getClientRects().length > 0;
  const numbers = list("[data-number]", (node) => {
    const entry = node.closest("[data-entry]");
    return {
      name: node.dataset.number,
      value: node.dataset.value === undefined ? undefined : Number(node.dataset.value),
      text: node.textContent ?? "",
      data: { ...node.dataset },
      entry: entry?.dataset.entry,
      place: entry?.dataset.place,
      section: node.closest("section")?.getAttribute("aria-label"),
      band: node.closest("[data-function]")?.dataset.function,
      stack: node.closest("[data-stack]")?.dataset.stack,
      isWhole: node.closest("[data-whole]")?.dataset.whole === "true",
      isBand: node.closest(".legend-entry") !== null,
    };
  });
  const grids = list(".grid", (grid) => ({
    label: grid.getAttribute("aria-label"),
    count: Number(grid.getAttribute("aria-rowcount")) - 1,
    rows: list(".grid-row", (row) => ({
      id: row.id,
      level: Number(row.getAttribute("aria-level")),
      selected: row.getAttribute("aria-selected") === "true",
      cells: Object.fromEntries(list("[data-column]", (cell) => [cell.dataset.column, { value: cell.dataset.value, text: cell.querySelector(".cell-text")?.firstChild?.textContent ?? "" }], row)),
    }), grid),
  }));
  const cut = list(".head-button, .grid-row .cell.number, .figure:not(.text), .bars .number, .costs td", (node) => node)
    .filter((node) => isShown(node) && node.scrollWidth > node.clientWidth + 1)
    .map((node) => node.innerText);
  // Elements whose digits are no numbers of the trace: names, places, the engine's own sentences, typed or selected values, the bounds of buckets.
  const NAMES = ".note, .command, .chip, .entry-name, .place, .source-path, .tree-name, .figure.text, .full-name, .full-place, .frames, .legend-name, .subject, select, pre, code, .line-number, .bars th, .bars-note, .tabs, .marker, .share, .entry-share, .share-of-all, .figure-name, .editor, .empty, .reason, .head, .diff .hint, .provenance, [data-label]";
  const unnamed = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { textContent, parentElement } = walk.currentNode;
    if (/\d/.test(textContent) && isShown(parentElement) && !parentElement.closest(`[data-number], [data-column], ${NAMES}`)) unnamed.push(`${parentElement.className || parentElement.tagName}: ${textContent}`);
  }
  return {
    hash: location.hash,
    unnamed,
    numbers,
    grids,
    cut,
    shares: list(".share, .entry-share, .share-of-all", (node) => (isShown(node) ? (node.textContent ?? "") : "")),
    colours: list("[data-colour][data-function]", (node) => [node.dataset.function, node.dataset.colour]),
    problems: list(".problem", (node) => node.textContent ?? ""),
    text: document.body.innerText,
    isMineChip: list(".chip-text", (node) => node.textContent === "my code").includes(true),
    titles: list("[title]", (node) => node.getAttribute("title") ?? ""),
    detail: document.querySelector(".detail") !== null,
    source: document.querySelector(".source-path")?.textContent ?? undefined,
    diffCost: [...document.querySelectorAll(".diff .pick")].find((node) => node.querySelector("span")?.textContent === "cost")?.querySelector("select")?.value,
  };
};
