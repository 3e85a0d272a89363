// A report on a machine that has a browser and nothing else: a chroot that tests/viewer/browser-root.sh makes. Only its browser runs in there; this script clicks.
//
//   node alone.mjs ROOT     environment: as tests/page/harness.mjs, and CHROMIUM or FIREFOX is set here
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = process.argv[2];
const isFirefox = process.env.BROWSER === "firefox";
const folder = mkdtempSync(join(tmpdir(), "heaptrack-alone-"));
// The mounts belong to the browser's own namespace and end with it. Profiles are in the machine's own folder for temporary files.
const wrapper = join(folder, "browser");
writeFileSync(
  wrapper,
  `#!/bin/sh
exec unshare --mount sh -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "${tmpdir()}" "$0/tmp" &&
    exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin:/bin MOZ_REMOTE_SETTINGS_DEVTOOLS=1 "$@"
' "${root}" ${isFirefox ? "/usr/bin/firefox-esr" : "/usr/bin/chromium"} "$@"
`,
);
chmodSync(wrapper, 0o755);
process.env[isFirefox ? "FIREFOX" : "CHROMIUM"] = wrapper;
const { bin, check, end, equal, go, has, holds, rows, trace, traces, settled, visit } = await import("../page/harness.mjs");
const { questions, shown, wanted } = await import("./shared.mjs");

const html = join(traces, "alone.html");
execFileSync(bin, ["report", trace("shop"), "-o", html], { stdio: "ignore" });
copyFileSync(html, join(root, "report.html"));

await check("the machine has no heaptrack, no node and no trace", async () => {
  for (const place of ["usr/bin", "bin", "usr/local/bin"]) {
    const names = readdirSync(join(root, place));
    equal(names.filter((name) => /heaptrack|^node|^python/.test(name)), [], place);
  }
  holds(!existsSync(join(root, "usr/share/heaptrack")), "no viewer");
});
await check("the report answers ranges, moments and filters that were not used when it was made", async () => {
  const page = await visit("file:///report.html");
  await settled(page);
  has(await page.locator("header .command").innerText(), "shop");
  for (const [words, options, columns] of questions("shop", "remember")) {
    await go(page, `#/bottom-up?levels=mine&${words}`);
    equal(await page.locator(".problem").allInnerTexts(), [], words);
    equal(await shown(page, columns), wanted("shop", columns, ...options), words);
    holds((await rows(page, "Bottom-up tree")).length > 0, `${words}: rows`);
  }
  await page.close();
});
rmSync(folder, { recursive: true, force: true });
await end();
