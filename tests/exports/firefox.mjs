// firefox.mjs FILE SESSION: reads a profile with the Firefox Profiler's own command line and prints as JSON, for each kind of
// allocations, the bytes in total and by function (with and without callees), the markers, and what is known of the processes.
// With several tracks, prints instead for each of them the bytes in total, allocated and retained, and its markers.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

const [file, session] = process.argv.slice(2);
const tool = new URL("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js", import.meta.url).pathname;
const folder = path.join(path.dirname(path.resolve(file)), "sessions");
fs.mkdirSync(folder);
const env = { ...process.env, PROFILER_CLI_SESSION_DIR: folder };
const run = (...words) =>
  execFileSync(process.execPath, [tool, ...words, "--session", session], { env, encoding: "utf8", maxBuffer: 1 << 28 });
const json = (...words) => JSON.parse(run(...words, "--json"));

// The tool's own `load` starts the same process, but gives up when it is not ready after half a second.
const daemon = spawn(process.execPath, [tool, "--daemon", file, "--session", session], { env, stdio: "inherit" });
const ended = new Promise((resolve) => daemon.once("exit", resolve));
const isReady = () => fs.readdirSync(folder).some((name) => name === `${session}.json`);
while (!isReady() && daemon.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 20));
try {
  const { threads } = json("thread", "list", "--limit", "100000");
  const tracks = [];
  for (const track of threads.length > 1 ? threads : []) {
    run("thread", "select", track.threadHandle);
    const bytes = (kind) => (run("strategy", kind), json("thread", "samples").categoryBreakdown.totalSamples);
    const [allocated, retained] = [bytes("native-allocations"), bytes("native-retained-allocations")];
    const { flatMarkers } = json("thread", "markers", "--list", "--limit", "100000");
    tracks.push({ ...track, allocated, retained, markers: flatMarkers });
  }
  const of = {};
  const kinds = ["timing", "native-allocations", "native-retained-allocations", "native-deallocations-memory"];
  for (const kind of tracks.length === 0 ? kinds : []) {
    run("strategy", kind);
    of[kind] = { samples: json("thread", "samples"), functions: json("thread", "functions", "--limit", "100000") };
  }
  const markers = json("thread", "markers", "--list", "--limit", "100000");
  console.log(JSON.stringify({ of, markers, tracks, info: json("profile", "info", "--all") }));
} finally {
  run("stop");
  await ended;
}
