// speedscope.mjs FILE: reads a file with the importer of speedscope itself and prints its profiles as JSON:
// { name, shown, profiles: [{ name, unit, total, stacks: { "outermost;...;innermost": weight }, frames: [[name, file, line]] }] }.
//
// The package has only the application, bundled for browsers. So this runs the bundle without a page, which ends when it wants to
// draw, and takes the importer from the bundle's table of modules.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const folder = new URL("node_modules/speedscope/dist/release/", import.meta.url).pathname;
const bundle = fs.readdirSync(folder).find((name) => /^speedscope-.*\.js$/.test(name));
let code = fs.readFileSync(path.join(folder, bundle), "utf8");

// The bundler's two helpers: one makes the exports of a module, the other runs a module at its first use.
function instrument(before, after) {
  if (!code.includes(before)) throw new Error(`speedscope's bundle has another form: ${before} is missing`);
  code = code.replace(before, after);
}
instrument("=(t,e)=>{for(var n in e)", "=(t,e)=>{__exports.push(t);for(var n in e)");
instrument("=(t,e)=>()=>(t&&(e=t(t=0)),e)", "=(t,e)=>__lazy(()=>(t&&(e=t(t=0)),e))");

const exports = [];
const modules = [];
const context = {
  __exports: exports,
  __lazy: (run) => (modules.push(run), run),
  console: { log() {}, warn() {}, error() {} },
  TextDecoder, TextEncoder, performance, setTimeout, clearTimeout,
  location: { hash: "", protocol: "http:", href: "", search: "" },
  navigator: { userAgent: "", platform: "" },
};
context.window = context.self = context;
vm.createContext(context);
const attempt = (run) => {
  try {
    run();
  } catch {
    // Modules that draw fail without a page. The importer is not among them, or it will not be found below.
  }
};
attempt(() => vm.runInContext(code, context));
modules.forEach((run) => attempt(run));

const importer = exports.find((module) => "importProfileGroupFromText" in module);
const file = process.argv[2];
const group = await importer.importProfileGroupFromText(path.basename(file), fs.readFileSync(file, "utf8"));
const profiles = group.profiles.map((profile) => {
  const stacks = {};
  const open = [];
  let before = 0;
  const note = (value) => {
    if (value > before && open.length > 0) {
      const key = open.map((node) => node.frame.name).join(";");
      stacks[key] = (stacks[key] ?? 0) + value - before;
    }
    before = value;
  };
  profile.forEachCall(
    (node, value) => (note(value), open.push(node)),
    (node, value) => (note(value), open.pop()),
  );
  const frames = [];
  profile.forEachFrame((frame) => frames.push([frame.name, frame.file ?? null, frame.line ?? null]));
  return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), stacks, frames };
});
console.log(JSON.stringify({ name: group.name, shown: group.indexToView, profiles }));
