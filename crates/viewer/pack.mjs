// Packs what `make viewer` makes: the page with the engine in one file, and the module for node and browsers in js/dist.
//
//   node pack.mjs ENGINE OUT   ENGINE: the WebAssembly file; OUT: the page
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const [engine, out] = process.argv.slice(2);
const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const page = join(root, "crates/web/page");
const { buildSync } = createRequire(join(page, "package.json"))("esbuild");
const common = {
  bundle: true,
  minify: true,
  write: false,
  target: ["es2022", "chrome110", "firefox115", "safari16.4"],
  logLevel: "warning",
  charset: "utf8",
  legalComments: "none",
  absWorkingDir: page,
};
const bundle = (entry, more) => buildSync({ ...common, entryPoints: [entry], ...more }).outputFiles[0].text;

const script = bundle("src/viewer/main.tsx", { format: "iife", jsx: "automatic", jsxImportSource: "preact" });
const worker = bundle("src/viewer/worker.ts", { format: "iife" });
const style = bundle("src/style.css");
for (const text of [script, worker]) if (/<\/script|<!--/.test(text)) throw new Error("a script would end its element");
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
// A worker has the policy of the page that made it. `wasm-unsafe-eval` lets it compile the engine, and no other code.
const policy = [
  "default-src 'none'",
  "connect-src 'none'",
  `script-src ${hash(script)} 'wasm-unsafe-eval'`,
  `style-src ${hash(style)}`,
  "worker-src blob:",
  "img-src data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
// `heaptrack report` puts a trace in the place of the comment `carried`, if this page has its own version (crates/web/src/with_engine.rs).
const version = /^version = "(.*)"$/m.exec(readFileSync(join(root, "Cargo.toml"), "utf8"))[1];
const packed = gzipSync(readFileSync(engine), { level: 9 }).toString("base64");
const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="heaptrack ${version}">
<title>heaptrack</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<div id="page"><p class="first">heaptrack is loading…</p></div>
<noscript><p class="first">This page needs JavaScript.</p></noscript>
<!--carried-->
<script type="text/plain" id="viewer-engine">${packed}</script>
<script type="text/plain" id="report-worker">${worker}</script>
<script>${script}</script>
</body>
</html>
`;
const MOST = 2_500_000;
if (html.length > MOST) throw new Error(`the page has ${html.length} bytes, more than ${MOST}`);
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, html);

const js = join(root, "js");
mkdirSync(join(js, "dist"), { recursive: true });
writeFileSync(join(js, "dist/index.js"), bundle(join(js, "src/index.ts"), { format: "esm", minify: false, external: ["node:fs"] }));
copyFileSync(engine, join(js, "dist/heaptrack.wasm"));
console.log(`${out}: ${html.length} bytes`);
