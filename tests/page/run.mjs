// Runs the themes in the arguments, or without arguments all themes.
import { end } from "./harness.mjs";

const all = ["lists", "better", "wrappers", "compare", "hunts", "numbers", "truth", "crawl", "mistakes", "custom", "processes", "allocators", "memory", "folded", "profiles", "safety", "files", "access", "report", "live", "versions", "screens"];
const wanted = process.argv.length > 2 ? process.argv.slice(2) : all;
for (const theme of wanted) {
  console.log(`-- ${theme}`);
  await import(`./${theme}.mjs`);
}
await end();
