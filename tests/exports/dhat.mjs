// dhat.mjs DH_VIEW.JS FILE: reads a file with the code of Valgrind's own viewer and prints the tree that it builds, as JSON.
import fs from "node:fs";
import vm from "node:vm";

const [viewer, file] = process.argv.slice(2);
const context = { file: fs.readFileSync(file, "utf8"), document: {}, window: {}, console };
vm.createContext(context);
// The viewer's variables are visible only to code of the same script.
const code = `${fs.readFileSync(viewer, "utf8")}
gData = JSON.parse(file);
gSelect = { childNodes: gSelectData.map(() => ({})), selectedIndex: 0 };
buildTree();
const node = (tree) => ({
  frames: tree._frames.map((frame) => gData.ftbl[frame]),
  total: [tree._totalBytes, tree._totalBlocks],
  lifetimes: tree._totalLifetimes,
  max: [tree._maxBytes, tree._maxBlocks],
  peak: [tree._atTGmaxBytes, tree._atTGmaxBlocks],
  end: [tree._atTEndBytes, tree._atTEndBlocks],
  kids: (tree._kids ?? []).map(node),
});
JSON.stringify({ root: node(gRoot), te: gData.te, tg: gData.tg, cmd: gData.cmd, pid: gData.pid, points: gData.pps.length })`;
console.log(vm.runInContext(code, context));
