// Clicks that open the details, and the stacks that the details must then be about.
import { keyOf, labelOf, shown } from "./engine.mjs";

/** Runs in the browser. Clicks the element with this index and returns what it was. */
const click = ([selector, index]) => {
  const all = [...document.querySelectorAll(selector)];
  const node = all[index % all.length];
  if (!node) return undefined;
  node.click();
  const grid = node.closest(".grid")?.getAttribute("aria-label") ?? "";
  const cell = (name) => node.querySelector(`[data-column="${name}"]`)?.dataset.value ?? "";
  return { grid, entry: node.dataset.entry, place: node.dataset.place, section: node.closest("section")?.getAttribute("aria-label") ?? "", name: cell("name"), live: cell("live_bytes") };
};

const SELECTORS = {
  summary: '.entry[data-entry], [aria-label="Changes by function"] .grid-row',
  "bottom-up": '.grid-row[aria-level="1"]',
  "top-down": '.grid-row[aria-level="1"]',
  callers: '[aria-label="Functions, inclusive and self"] .grid-row',
  leaks: '[aria-label="Leaks"] .grid-row',
};

const placeOf = (level) => (level?.file ? (level.line ? `${level.file}:${level.line}` : level.file) : "");

/** Returns undefined if there is nothing to click, or if a row's name does not say which stacks it contains. */
export const pick = async (page, { state, look, engine }, random) => {
  const selector = SELECTORS[state.view];
  if (!selector || look.merge !== "function") return undefined;
  const clicked = await page.evaluate(click, [selector, random.below(1000)]);
  if (!clicked) return undefined;
  const { isMine, isOther } = look;
  const ends = (end, name) => ({ path }) => labelOf(shown(path, isMine).at(end)) === name;
  const name = clicked.name.split("\t")[0];
  const collapsed = (path) => shown(path, isMine).map((level) => keyOf(level, "function", isOther)).filter((key, at, list) => !look.isCollapsed || key !== list[at - 1]);
  const common = { told: clicked.entry ?? name, between: isOther ? state.compare : "" };
  switch (clicked.grid) {
    case "Bottom-up tree":
      return { ...common, isOf: ends(0, name) };
    case "Top-down tree":
      return { ...common, isOf: ends(-1, name), isSelf: ({ path }) => collapsed(path).length === 1 };
    case "Functions, inclusive and self":
      return { ...common, isOf: ({ path }) => shown(path, isMine).some((level) => labelOf(level) === name), isSelf: ends(0, name) };
    case "Changes by function": {
      const own = name.replace(/, what it allocates itself$/, "");
      return { ...common, isOf: ends(0, own) };
    }
    case "Leaks": {
      const { sites } = await engine.ask("leaks", state.file, new URLSearchParams());
      const places = sites.filter((site) => (site.function ?? "") === clicked.name);
      if (places.length !== 1) return { ...common, isUnknown: true };
      return { ...common, isWhole: true, isOf: ({ blamed, isSuppressed }) => labelOf(blamed) === clicked.name && placeOf(blamed) === placeOf(places[0]) && !isSuppressed };
    }
    default: {
      const isJudged = clicked.section.startsWith("Not freed: leak or not?");
      const isIt = (blamed) => labelOf(blamed) === clicked.entry && (isOther || placeOf(blamed) === clicked.place);
      return { ...common, isOf: ({ blamed, isSuppressed }) => isIt(blamed) && (!isJudged || state.get("suppressions") === "0" || !isSuppressed) };
    }
  }
};
