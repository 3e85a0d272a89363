// Shared by the tests of the viewer and of reports: a static server, a server that must see no request, and what a user does with files.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { equal, print, rows, settled, trace } from "../page/harness.mjs";

/** The viewer that `make viewer` made. */
export const viewer = fileURLToPath(new URL("../../target/viewer/heaptrack-viewer.html", import.meta.url));
export const VIEWS = ["summary", "flame", "bottom-up", "top-down", "callers?fn=main", "consumed", "allocations", "temporary", "sizes", "lifetimes", "leaks", "memory", "allocators", "processes", "threads", "source"];

const listen = async (server) => {
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return { place: `127.0.0.1:${server.address().port}`, stop };
};

/** A server that notes every request, as one in the user's network would see it. */
export const outside = async () => {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push(request.url);
    response.writeHead(200, { "access-control-allow-origin": "*" }).end("x");
  });
  server.on("upgrade", (request, socket) => {
    seen.push(request.url);
    socket.destroy();
  });
  return { seen, ...(await listen(server)) };
};

/** A plain static server of one page, at /page.html. */
export const site = async (file) => {
  const html = readFileSync(file);
  const server = createServer((request, response) => response.writeHead(request.url === "/page.html" ? 200 : 404, { "content-type": "text/html" }).end(request.url === "/page.html" ? html : ""));
  const { place, stop } = await listen(server);
  return { url: `http://${place}/page.html`, stop };
};

/** Drops files on the page as a user does. */
export const drop = async (page, ...paths) => {
  const files = paths.map((path) => ({ name: basename(path), bytes: readFileSync(path).toString("base64") }));
  await page.evaluate((list) => {
    const data = new DataTransfer();
    for (const { name, bytes } of list) data.items.add(new File([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))], name));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, files);
  await page.waitForSelector(".figures, .problem");
  await settled(page);
};

/** The values of some columns of all rows, in a fixed order. */
const sorted = (list) => list.map((one) => one.join()).sort();
export const shown = async (page, columns) => sorted((await rows(page, "Bottom-up tree")).map((row) => columns.map((cost) => Number(row.cells[cost]))));
export const wanted = (name, columns, ...options) => sorted(print("bottom-up", trace(name), "--hide", "all-but-mine", "--collapse", "recursion", ...options).roots.map(({ total }) => columns.map((cost) => total[cost])));

/** Ranges, moments and filters of a trace, which has the function `name`: the words of the page's address, the options of `print`, and columns to compare. */
export const questions = (of = "orders", name = "formatRow") => {
  const end = print("timeline", trace(of)).range.to_ns;
  const [a, b] = [Math.floor(end / 7), Math.floor((end * 5) / 7)];
  const all = ["peak_bytes", "allocations", "temporary", "allocated_bytes"];
  return [
    ["", [], all],
    [`from=${a}&to=${b}`, ["--from", `${a}ns`, "--to", `${b}ns`], all],
    [`at=${b}`, ["--at", `${b}ns`], ["live_bytes", "live_allocations"]],
    ["at=peak", ["--at", "peak"], ["live_bytes", "live_allocations"]],
    [`include=function:${name}`, ["--include", `function:${name}`], ["peak_bytes", "allocations"]],
    [`exclude=function:${name}&size=10..70`, ["--exclude", `function:${name}`, "--size", "10..70"], ["peak_bytes", "allocations"]],
    ["thread=0", ["--thread", "0"], ["peak_bytes", "allocations"]],
  ];
};

/** Tries every kind of request that a page can make. None may reach the server `away`. */
export const tryRequests = async (page, { place, seen }) => {
  // The browser logs every refusal, sometimes late.
  page.mayLog = true;
  await page.evaluate(async (away) => {
    const tries = [
      () => fetch(`http://${away}/fetch`),
      () => fetch(`http://${away}/no-cors`, { mode: "no-cors" }),
      () => navigator.sendBeacon(`http://${away}/beacon`, "x"),
      () => new EventSource(`http://${away}/events`),
      () => new WebSocket(`ws://${away}/socket`),
      () => new Promise((done) => { const image = new Image(); image.onload = image.onerror = done; image.src = `http://${away}/image`; }),
      () => new Promise((done) => { const one = document.createElement("script"); one.onload = one.onerror = done; one.src = `http://${away}/script`; document.body.append(one); }),
      () => new Promise((done) => { const one = document.createElement("link"); one.rel = "stylesheet"; one.onload = one.onerror = done; one.href = `http://${away}/style`; document.head.append(one); }),
      () => new Promise((done) => { const one = document.createElement("video"); one.onerror = done; one.src = `http://${away}/video`; document.body.append(one); }),
      () => new Promise((done) => { const one = document.createElement("object"); one.onload = one.onerror = done; one.data = `http://${away}/object`; document.body.append(one); setTimeout(done, 200); }),
      () => new Promise((done) => { const one = document.createElement("link"); one.rel = "prefetch"; one.onload = one.onerror = done; one.href = `http://${away}/prefetch`; document.head.append(one); setTimeout(done, 200); }),
      () => { const one = document.createElement("iframe"); one.src = `http://${away}/frame`; document.body.append(one); },
      () => { const one = document.createElement("form"); one.action = `http://${away}/form`; one.method = "post"; document.body.append(one); one.submit(); },
      () => new Promise((done) => { const worker = new Worker(URL.createObjectURL(new Blob([`fetch("http://${away}/worker").then(() => postMessage(1), () => postMessage(0))`]))); worker.onmessage = done; worker.onerror = done; }),
    ];
    for (const one of tries) {
      try {
        await one();
      } catch {
        // Refused, as it should be.
      }
    }
  }, place);
  equal(seen, [], "requests");
};

/** Tries to run scripts that are not the page's own. No policy forbids WebRTC or a link to another site, so no such script may run. */
export const tryScripts = async (page) => {
  page.mayLog = true;
  const ran = await page.evaluate(async () => {
    window.ran = [];
    const add = (make) => document.body.append(make);
    const tries = [
      () => { const one = document.createElement("script"); one.textContent = "ran.push('inline')"; add(one); },
      () => { const one = document.createElement("script"); one.src = "data:text/javascript,ran.push('data')"; add(one); },
      () => { const one = document.createElement("script"); one.src = URL.createObjectURL(new Blob(["ran.push('blob')"])); add(one); },
      () => { const one = document.createElement("div"); one.innerHTML = "<img src=x onerror=ran.push('handler')><a href=\"javascript:ran.push('link')\">x</a>"; add(one); one.querySelector("a").click(); },
      () => { const one = document.createElement("iframe"); one.srcdoc = "<script>parent.ran.push('frame')</script>"; add(one); },
      () => window.eval("ran.push('eval')"),
      () => new Function("ran.push('function')")(),
      () => setTimeout("ran.push('timer')"),
    ];
    // Each in a task of its own, because the browser allows a test's own task to compile texts.
    for (const one of tries) {
      await new Promise((done) => {
        setTimeout(() => {
          try {
            one();
          } catch {
            // Refused, as it should be.
          }
          done();
        });
      });
    }
    await new Promise((done) => setTimeout(done, 500));
    return window.ran;
  });
  equal(ran, [], "scripts that ran");
};

/** What a script needs to send data elsewhere. The scripts of a page that is one file have none of it. */
export const SENDERS = ["fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "RTCPeerConnection", "importScripts", "window.open", "location.href="];
