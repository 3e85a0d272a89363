// Builds the page into the folder that is given (default: dist): page.js, worker.js, page.css, index.html.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
const common = {
  bundle: true,
  minify: true,
  target: ["es2022", "chrome110", "firefox115", "safari16.4"],
  logLevel: "warning",
  charset: "utf8",
  legalComments: "none",
};
await build({
  ...common,
  entryPoints: { page: "src/main.tsx" },
  outdir: out,
  format: "iife",
  jsx: "automatic",
  jsxImportSource: "preact",
});
await build({ ...common, entryPoints: { worker: "src/work/worker.ts" }, outdir: out, format: "iife" });
await build({ ...common, entryPoints: { page: "src/style.css" }, outdir: out });
await copyFile("src/index.html", `${out}/index.html`);
