// What must hold for a screen. Every check returns sentences about what does not hold.
import { add, byBlame, byEnd, byFunction, byLevel, costOf, grouped, keyOf, labelOf, question, readName, rowName, shown } from "./engine.mjs";
import { isNear, says } from "./written.mjs";

const FORBIDDEN = /\bNaN\b|undefined|Infinity|\[object|\bnull\b| of 0(?![\d.,])/;

/** Everything that the checks need to know about a state. */
export const about = async (engine, state) => {
  const sides = await engine.sides(state);
  const before = sides.before && Object.fromEntries(Object.entries(sides.before.totals).map(([cost, amount]) => [cost, amount * sides.factor(cost)]));
  const look = { isMine: await engine.isMine(state), merge: state.get("merge", "function"), isOther: state.isOther, isCollapsed: state.get("recursion") !== "0" };
  return { engine, state, sides, totals: sides.now.totals, before, look, isDiff: state.compare !== null, seconds: (sides.now.range.to_ns - sides.now.range.from_ns) / 1e9 };
};

const words = ({ text, titles }) => [text, ...titles].flatMap((one) => {
  const found = FORBIDDEN.exec(one);
  return found ? [`shows "${one.slice(Math.max(0, found.index - 40), found.index + 30)}"`] : [];
});

const shares = ({ shares: list }, { isDiff }) =>
  list.flatMap((text) => {
    const share = Number.parseFloat(text.replace("−", "-"));
    const isFine = text.trim() === "" || text.includes("<") || (share <= 100 && share >= (isDiff ? -100 : 0));
    return isFine ? [] : [`a share of ${text}`];
  });

/** Computes a named total from the engine's totals. Undefined if the name is unknown. */
const total = async (name, { engine, state, sides, totals, before, seconds }) => {
  const session = async (trace) => (await engine.trace(trace))?.session ?? {};
  const [, cost, how] = /^(\S+)(?: (before|change))?$/.exec(name) ?? [];
  if (cost && ["peak_rss_bytes", "overhead_bytes", "system_memory"].includes(cost)) {
    const now = (await session(state.file))[cost];
    const past = how ? (await session(Number(state.compare)))[cost] : 0;
    return how === "before" ? past : how === "change" ? now - past : now;
  }
  if (["runtime_ns", "events", "lost_events", "folded_until_ns"].includes(name)) return (await session(state.file))[name];
  if (name === "short_lived") return engine.shortLived(state);
  if (name === "to_ns") return sides.now.range.to_ns;
  if (cost && how) return how === "before" ? costOf(before ?? {}, cost) : costOf(totals, cost) - costOf(before ?? {}, cost);
  const [, part, whole] = /^(\S+) \/ (\S+)$/.exec(name) ?? [];
  if (whole === "s") return totals[part] / seconds;
  if (part) return (part === "short_lived" ? await engine.shortLived(state) : totals[part]) / Math.max(1, totals[whole]);
  return cost === undefined ? undefined : costOf(totals, cost);
};

const weight = (group, cost, isDiff) => (isDiff ? costOf(group.now, cost) - costOf(group.before, cost) : costOf(group.now, cost));
const timelineWords = (state) => {
  const asked = question(state, { timed: false });
  // A filter by lifetime depends on the end of the range, so then the whole session is requested.
  if (state.words.has("zoomFrom") && state.words.has("zoomTo") && !state.words.has("lifetime")) for (const [name, key] of [["from", "zoomFrom"], ["to", "zoomTo"]]) asked.set(name, state.get(key));
  return asked;
};
const inBuckets = (answer, { from, to }, columns) =>
  answer.from.reduce((sum, low, index) => (low >= Number(from) && answer.to[index] <= Number(to) ? sum + columns.reduce((all, column) => all + answer[column][index], 0) : sum), 0);

/** The values that a displayed number may have. There are several if its label does not say which line is meant. Undefined if the name is unknown. */
const candidates = async (number, context, screen) => {
  const { engine, state, sides, isDiff } = context;
  const { name, data } = number;
  const [kind, rest] = [name.split(" ")[0], name.split(" ").slice(1).join(" ")];
  const ask = (view, asked = question(state), more) => engine.ask(view, state.file, asked, more);
  switch (kind) {
    case "holder": {
      const cost = rest.replace(" change", "");
      const list = byBlame(sides, state.isOther).map((group) => weight(group, cost, isDiff));
      const most = Math.max(0, ...list.map(Math.abs));
      return list.filter((amount) => isNear(Math.abs(amount), most));
    }
    case "pill": {
      if (rest === "own_peak") {
        const { own_peak: own } = await ask("timeline", timelineWords(state), { points: 256, top: 10 });
        return Number(data.time) === own.time_ns ? [own.bytes] : [];
      }
      const { totals } = await ask("profile", new URLSearchParams());
      if (Number(data.time) !== totals.peak_time_ns) return [];
      return [(await ask("profile", question(state, { timed: false, filtered: !engine.isReport }))).totals.peak_bytes];
    }
    case "band":
      if (number.band === undefined) {
        const others = screen.numbers.filter((one) => one.name === name && one.section === number.section && one.band !== undefined);
        return [context.totals.live_bytes - others.reduce((sum, one) => sum + one.value, 0)];
      }
      return [costOf(byFunction({ ...sides, baseRows: [] }).find(({ key }) => key === number.band)?.now ?? {}, "live_bytes")];
    case "entry": {
      const groups = byBlame(sides, state.isOther).filter(({ label, place }) => label === number.entry && (state.isOther || place === number.place));
      const [, cost, how] = /^(\S+)(?: (now|before))?$/.exec(rest) ?? [];
      const [part, whole] = rest.split(" / ");
      if (whole) return groups.map(({ now }) => costOf(now, part) / costOf(now, whole));
      return groups.map((group) => (how ? costOf(group[how], cost) : weight(group, cost, isDiff)));
    }
    case "leak": {
      const { sites } = await ask("leaks");
      return sites.filter((site) => (site.function ?? "") === number.entry && `${site.file}:${site.line}` === number.place).map((site) => site[rest]);
    }
    case "verdict": {
      const { sites } = await ask("leaks", question(state, { timed: false }));
      return [sites.filter((site) => (rest === "live" ? site.live_allocations > 0 : site.verdict === rest)).length];
    }
    case "more": {
      const listed = screen.numbers.filter((one) => one.section === number.section && one.name === `entry ${rest}`).length;
      const [places] = screen.numbers.filter((one) => one.section === number.section && one.name === `places ${rest}`);
      return [places.value - listed];
    }
    case "rows":
      return screen.grids.filter(({ label }) => /tree$|^Threads$/.test(label)).map(({ count }) => count);
    case "stack": {
      const about = number.isWhole ? { rows: await engine.rows(state.file, question(state, { timed: false })), baseRows: [], factor: () => 1 } : sides;
      // Stacks of the other trace are numbered after those of this one.
      const count = state.isOther && !number.isWhole ? (await engine.stacks(state.file)).length : 0;
      const id = Number(number.stack);
      const find = (rows, wanted) => rows.find(({ stack }) => stack === wanted)?.costs ?? {};
      const now = find(about.rows, id);
      const past = find(about.baseRows, id - count);
      const cost = rest.replace(" change", "");
      const before = cost === rest ? 0 : costOf(Object.fromEntries(Object.entries(past).map(([name, amount]) => [name, amount * about.factor(name)])), cost);
      return [costOf(now, cost) - before];
    }
    case "places":
      if (rest === "not freed") return [(await ask("leaks")).sites.filter((site) => site.live_allocations > 0 && !site.suppressed).length];
      // Rounding errors of the scaling are no difference, but the page counts them, so this number is not checked.
      if (state.normalise !== "no") return [number.value];
      return [byBlame(sides, state.isOther).filter((group) => (isDiff ? weight(group, rest, true) !== 0 : weight(group, rest, false) > 0)).length];
    case "memory": {
      const { instants, highest, shown } = await engine.memory(state);
      if (rest === "highest") return [instants[highest].rss_bytes];
      return [rest === "parts" ? shown.parts.length : shown[rest]];
    }
    // The map of a moment is the last one up to it. A filter does not change it.
    case "map":
      return [(await ask("map", question(state, { filtered: false })))[rest]];
    case "highest": {
      const { instants, highest } = await engine.memory(state);
      const top = instants[highest];
      return [rest === "time_ns" ? top.time_ns : rest === "share" ? ofKind(top, "blocks") / top.rss_bytes : ofKind(top, rest)];
    }
    case "instant": {
      const { instants, shown } = await engine.memory(state);
      const instant = instants.find(({ time_ns }) => time_ns === Number(data.time));
      // The crawler's mouse is never over the chart, so the legend is about the instant of the table.
      if (instant !== shown) return [];
      return [rest in instant ? instant[rest] : ofKind(instant, rest)];
    }
    case "line": {
      const isSelf = rest.startsWith("self ");
      const cost = rest.replace("self ", "");
      const file = (await ask("source")).files.find((one) => one.file === screen.source);
      const line = file?.lines.find((one) => one.line === Number(data.line));
      return [line ? costOf(isSelf ? line.self : line.inclusive, cost) : 0];
    }
    case "bar": {
      if (rest === "Sizes") return [inBuckets(await ask("sizes"), data, [state.mode === "moment" && !engine.isReport ? "live_bytes" : state.get("measure", "allocations")])];
      const isBytes = state.get("measure", "allocations") !== "allocations";
      return [inBuckets(await ask("lifetimes"), data, isBytes ? ["freed_bytes", "live_bytes"] : ["deallocations", "live_allocations"])];
    }
    default: {
      const wanted = await total(name, context);
      return wanted === undefined ? undefined : [wanted];
    }
  }
};

const ofKind = ({ parts }, kind) => parts.reduce((sum, part) => (part.kind === kind ? sum + part.rss_bytes : sum), 0);

const numbers = async (screen, context) => {
  const wrong = [];
  for (const number of screen.numbers.filter(({ name }) => !name.startsWith("detail "))) {
    const wanted = await candidates(number, context, screen);
    if (wanted === undefined) wrong.push(`${number.name}: an unknown number`);
    else if (!wanted.some((one) => isNear(number.value, one))) wrong.push(`${number.name}${number.entry ? ` of ${number.entry}` : ""}${number.band ? ` of ${number.band}` : ""}: shows ${number.value} (${number.text}), the engine says ${wanted}`);
    else if (!says(number.text, number.value)) wrong.push(`${number.name}: ${number.value} is written as "${number.text}"`);
  }
  return wrong;
};

/** Costs that are means, with the number by which each is divided. */
const MEANS = { mean_lifetime: "deallocations", average: "allocations", kept_ratio: "allocations" };
const isMeanOfNothing = ({ now, before }, column, isDiff) => {
  const of = MEANS[column];
  return of !== undefined && !((now?.[of] ?? 0) > 0 && (!isDiff || (before?.[of] ?? 0) > 0));
};

/** A mean of nothing is a dash. A mean life is a number even if it, or its change, is 0, because 0 only means that it is too short to measure. */
const isWritten = (group, column, { value, text }, isDiff) => {
  if (isMeanOfNothing(group, column, isDiff)) return text === "–";
  return says(text, Number(value)) && !(column === "mean_lifetime" && text === "–");
};

/**
 * Every visible row must be one of the groups, and the numbers of rows and groups must be equal. A row is a group if they have the same name and the same numbers.
 * Numbers alone do not tell groups apart: in a comparison, everything that did not change is 0.
 */
export const matched = (grid, rows, groups, of, { look = { merge: "function" }, isDiff = false } = {}) => {
  const wrong = grid.count === groups.length ? [] : [`${grid.label}: ${grid.count} rows, the engine has ${groups.length}`];
  const left = [...groups];
  for (const { cells } of rows) {
    const name = readName((cells.name ?? cells.line)?.value ?? "", look);
    const columns = Object.keys(cells).filter((column) => cells[column].value !== undefined && of(left[0] ?? groups[0] ?? {}, column) !== undefined);
    const isEqual = (group) => group.label === name && columns.every((column) => isNear(Number(cells[column].value), of(group, column)));
    const unwritten = (group) => columns.filter((column) => !isWritten(group, column, cells[column], isDiff));
    // Functions of different modules may have one name. If their numbers are equal, too, the row is the one whose means are written as it shows them.
    const group = left.find((one) => isEqual(one) && unwritten(one).length === 0) ?? left.find(isEqual);
    if (!group) {
      wrong.push(`${grid.label}: ${name} has ${columns.map((column) => `${column} ${cells[column].value}`)}, which the engine has nowhere under this name`);
      continue;
    }
    left.splice(left.indexOf(group), 1);
    for (const column of unwritten(group)) wrong.push(`${grid.label}, ${column} of ${name}: ${cells[column].value} is written as "${cells[column].text}"`);
  }
  return wrong;
};

const treeColumns = (selves, isDiff) => (group, column) => {
  if (column === "name") return undefined;
  if (!column.startsWith("self ")) return weight(group, column, isDiff);
  return costOf(selves.find(({ key }) => key === group.key)?.now ?? {}, column.slice(5));
};

/** The costs of stacks that show nothing but their outermost level. */
const onlyRoots = ({ sides, look }) => {
  const isAlone = (list) => (look.isCollapsed ? list.every((level) => keyOf(level, look.merge, look.isOther) === keyOf(list[0], look.merge, look.isOther)) : list.length === 1);
  const rows = sides.rows.filter(({ path }) => isAlone(shown(path, look.isMine)));
  return byEnd({ ...sides, rows, baseRows: [] }, look, -1);
};

const gridChecks = {
  "Bottom-up tree": (grid, { sides, look, isDiff }) => matched(grid, grid.rows.filter(({ level }) => level === 1), byEnd(sides, look, 0), treeColumns([], isDiff), { look, isDiff }),
  "Top-down tree": (grid, context) => matched(grid, grid.rows.filter(({ level }) => level === 1), byEnd(context.sides, context.look, -1), treeColumns(onlyRoots(context), context.isDiff), context),
  "Functions, inclusive and self": (grid, { sides, look, isDiff }) => matched(grid, grid.rows, byLevel(sides, look), treeColumns(byEnd(sides, look, 0), isDiff), { look, isDiff }),
  Threads: async (grid, { engine, state }) => {
    const { threads } = await engine.ask("threads", state.file, question(state));
    const label = ({ name, tid, index }) => (name ? `${name} (${tid ?? index})` : `thread ${tid ?? index}`);
    return matched(grid, grid.rows, threads.map((thread) => ({ ...thread, label: label(thread) })), ({ costs }, column) => (column === "name" ? undefined : (costs ?? {})[column] ?? 0));
  },
  "Parts of the memory": async (grid, { engine, state }) => {
    const { shown } = await engine.memory(state);
    const left = shown.parts.map((part) => [part.kind, part.name, part.rss_bytes, part.pss_bytes].join("|"));
    const wrong = grid.count === left.length ? [] : [`${grid.label}: ${grid.count} rows, the engine has ${left.length}`];
    for (const { cells } of grid.rows) {
      const row = ["kind", "name", "rss_bytes", "pss_bytes"].map((column) => cells[column].value).join("|");
      if (left.includes(row)) left.splice(left.indexOf(row), 1);
      else wrong.push(`${grid.label}: ${row} is nowhere`);
      for (const column of ["rss_bytes", "pss_bytes"]) if (!says(cells[column].text, Number(cells[column].value))) wrong.push(`${grid.label}, ${column} of ${row}: written as "${cells[column].text}"`);
    }
    return wrong;
  },
  Leaks: async (grid, { engine, state }) => {
    const { sites } = await engine.ask("leaks", state.file, question(state, { timed: false }));
    const isNumber = ["live_bytes", "live_allocations"];
    const groups = sites.filter((site) => site.live_allocations > 0).map((site) => ({ ...site, label: site.function ?? "" }));
    return matched(grid, grid.rows, groups, (site, column) => (isNumber.includes(column) ? (site[column] ?? 0) : undefined));
  },
  "Changes by function": (grid, { sides, look, state }, screen) => {
    if (state.normalise !== "no") return [];
    const of = (group, side) => costOf(group[side] ?? {}, screen.diffCost);
    const groups = byEnd(sides, look, 0).filter((group) => of(group, "now") !== of(group, "before"));
    const columns = { before: (group) => of(group, "before"), after: (group) => of(group, "now"), delta: (group) => of(group, "now") - of(group, "before") };
    return matched(grid, grid.rows, groups, (group, column) => columns[column]?.(group), { look });
  },
  "Changes in other measures": (grid, { sides, look }, screen) => {
    const groups = byEnd(sides, look, 0).filter(({ now, before }) => costOf(now, screen.diffCost) === costOf(before, screen.diffCost));
    const of = (group, side, measure) => (measure === "own_peak" ? group.largest[side] : costOf(group[side], measure));
    const isThere = ({ cells }) => groups.some((group) => group.label === readName(cells.name.value, look) && of(group, "before", cells.measure.value) === Number(cells.before.value) && of(group, "now", cells.measure.value) === Number(cells.after.value));
    return grid.rows.filter((row) => !isThere(row)).map(({ cells }) => `${grid.label}: ${cells.name.value}, ${cells.measure.value}: ${cells.before.value} to ${cells.after.value} is nowhere`);
  },
};

/**
 * Checks a table of the callers, the callees or the lines of a function. It is only checked if rows are merged by function, because other names do not say what a
 * row contains.
 */
const around = (grid, [, which, name], { sides, look, isDiff }) => {
  if (look.merge !== "function") return [];
  const path = (row) => {
    const list = shown(row.path, look.isMine);
    const keys = list.map((level) => keyOf(level, "function", look.isOther));
    // Of equal neighbours only the outermost stays.
    return list.filter((_, at) => !look.isCollapsed || keys[at] !== keys[at + 1]);
  };
  const places = (row) => path(row).flatMap((level, at) => (labelOf(level) === name ? [at] : []));
  const step = { Callers: 1, Callees: -1, Lines: 0 }[which];
  const key = (level) => (step === 0 ? `${level?.file ?? ""}:${level?.line ?? 0}` : keyOf(level, "function", look.isOther));
  const found = (row) => places(row).map((at) => path(row)[at + step]).filter((level, index) => places(row)[index] + step >= 0 && (level !== undefined || places(row)[index] + step < path(row).length));
  const groups = grouped(sides, (row) => [...new Map(found(row).map((level) => [key(level), step === 0 ? key(level) : rowName(level, look)]))]);
  return matched(grid, grid.rows, groups, (group, column) => (column === "name" || column === "line" || column.startsWith("self ") ? undefined : weight(group, column, isDiff)), { look, isDiff });
};

const gridsOf = async (screen, context) => {
  const wrong = [];
  for (const grid of screen.grids) {
    const words = /^(Callers|Callees|Lines) of (.*)$/.exec(grid.label);
    wrong.push(...(words ? around(grid, words, context) : ((await gridChecks[grid.label]?.(grid, context, screen)) ?? [`${grid.label}: an unknown table`])));
  }
  return wrong;
};

/** The details must belong to the selected row and to the current address. */
const details = async (screen, context, picked) => {
  if (!picked) return screen.detail ? ["details of something that was not picked"] : [];
  if (!screen.detail) return ["the details are gone"];
  const { engine, state, sides } = context;
  const about = picked.isWhole ? { rows: await engine.rows(state.file, question(state, { timed: false })), baseRows: [], factor: () => 1 } : sides;
  const chosen = { rows: about.rows.filter(picked.isOf), baseRows: about.baseRows.filter(picked.isOf) };
  const [group] = grouped({ ...chosen, factor: about.factor }, () => [["", ""]]);
  const own = chosen.rows.filter(picked.isSelf ?? (() => false)).reduce((sums, { costs }) => add(sums, costs), {});
  const count = state.isOther && !picked.isWhole ? chosen.rows.length + chosen.baseRows.length : new Set([...chosen.rows, ...chosen.baseRows].map(({ stack }) => stack)).size;
  const of = (how) => (how === "before" ? group?.before : how === "self" ? own : group?.now) ?? {};
  const wrong = [];
  for (const { name, value, text } of screen.numbers.filter((one) => one.name.startsWith("detail "))) {
    const [, cost, how] = name.split(" ");
    const [now, before] = [costOf(group?.now ?? {}, cost), costOf(group?.before ?? {}, cost)];
    const wanted = cost === "stacks" ? count : how === "before" ? before : how === "change" ? now - before : how === "self" ? costOf(own, cost) : now;
    if (!isNear(value, wanted)) wrong.push(`details of ${picked.told}, ${cost} ${how ?? ""}: ${value} (${text}), the engine says ${wanted}`);
    else if (cost in MEANS && how !== "change" && ((of(how)[MEANS[cost]] ?? 0) > 0) === (text === "–")) wrong.push(`details, ${name}: "${text}", of ${of(how)[MEANS[cost]] ?? 0} ${MEANS[cost]}`);
    else if (!says(text, value) && text !== "–") wrong.push(`details, ${name}: ${value} is written as "${text}"`);
  }
  return wrong;
};

const colours = (screen, known) =>
  screen.colours.flatMap(([name, colour]) => {
    const first = known.get(name) ?? colour;
    known.set(name, first);
    return first === colour ? [] : [`${name} is ${colour}, and was ${first}`];
  });

/** The same name must have the same number, wherever it is shown. */
const agreement = ({ numbers: list }) => {
  const known = new Map();
  return list.flatMap(({ name, value, entry, place, band, stack, data, section }) => {
    const key = [name, entry, place, band, stack, data.line, data.from, /^(entry|bar|band|places)/.test(name) ? section : ""].join("|");
    const first = known.get(key) ?? value;
    known.set(key, first);
    return first === value ? [] : [`${name} is ${first} and ${value} on one screen`];
  });
};

/** The source text of a library may be missing on this machine, which is no contradiction. */
const MISSING_TEXT = /is not on this machine\.|is not in this report\.|is not in the trace, and this page reads no other files/;

/** In these views a report has only numbers about the whole session. The page must say so. */
const WHOLE_ONLY = ["sizes", "lifetimes", "leaks", "threads", "source"];
const isAnnounced = ({ text, numbers: list }, { engine, state }) => {
  const isFiltered = ["include", "exclude"].some((name) => state.words.has(name));
  const isPart = isFiltered || (state.mode !== "session" && WHOLE_ONLY.includes(state.view));
  const isWhole = WHOLE_ONLY.includes(state.view) || list.some(({ name }) => name.startsWith("pill "));
  return !(engine.isReport && isPart && isWhole) || /(only for|about) the whole session/.test(text);
};

export const contradictions = async (screen, context, picked, known) => [
  ...(isAnnounced(screen, context) ? [] : ["shows the whole session, and does not say so"]),
  ...words(screen),
  ...shares(screen, context),
  ...screen.problems.filter((text) => !MISSING_TEXT.test(text)).map((text) => `a problem: ${text}`),
  ...screen.cut.map((text) => `"${text}" is cut off`),
  ...(screen.isMineChip === context.look.isMine ? [] : ["whose code is shown is not what the address says"]),
  ...screen.unnamed.map((text) => `a number without a name: ${text}`),
  ...colours(screen, known),
  ...agreement(screen),
  ...(await numbers(screen, context)),
  ...(await gridsOf(screen, context)),
  ...(await details(screen, context, picked)),
];
