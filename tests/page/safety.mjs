// Requests that are refused: from other hosts and other pages, without the token, for paths outside of the page, with bodies that are too large.
import { createConnection } from "node:net";
import { check, equal, has, holds, serve, trace } from "./harness.mjs";

const server = await serve([trace("orders")]);
const cookie = `heaptrack_${server.port}=${server.token}`;

/** Sends a request as bytes and returns the whole answer. */
const raw = (text, body) =>
  new Promise((resolve) => {
    const socket = createConnection(server.port, "127.0.0.1");
    let answer = "";
    socket.on("data", (bytes) => (answer += bytes));
    socket.on("close", () => resolve(answer));
    socket.on("error", () => resolve(answer));
    socket.write(text);
    body?.(socket);
  });
const request = (line, headers = {}) => raw(`${line} HTTP/1.1\r\n${Object.entries({ Host: `127.0.0.1:${server.port}`, Connection: "close", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
const status = (answer) => Number(answer.split(" ")[1]);
while (!(await request("GET /api/status?trace=0", { Cookie: cookie })).includes('"state":"ready"'));

await check("with the token the page comes, and nothing may be inline or from elsewhere", async () => {
  const first = await request(`GET /?token=${server.token}`);
  equal(status(first), 303, "redirect");
  has(first.toLowerCase(), "samesite=strict");
  has(first.toLowerCase(), "httponly");
  const page = await request("GET /", { Cookie: cookie });
  equal(status(page), 200, "page");
  has(page, "default-src 'none'");
  has(page, "frame-ancestors 'none'");
  has(page, "nosniff");
  holds(!page.includes("unsafe-inline") && !page.includes("unsafe-eval"), "strict");
});
await check("DNS rebinding: a foreign Host is refused", async () => {
  for (const host of ["evil.example", `evil.example:${server.port}`, "169.254.169.254", ""]) {
    const answer = await request("GET /api/stacks?trace=0", { Host: host, Cookie: cookie });
    holds(status(answer) === 421 || status(answer) === 400, `${host}: ${status(answer)}`);
    holds(!answer.includes("strings"), "nothing told");
  }
});
await check("a foreign Origin is refused", async () => {
  for (const origin of ["http://evil.example", "null", `http://localhost.evil.example:${server.port}`]) equal(status(await request("GET /api/stacks?trace=0", { Origin: origin, Cookie: cookie })), 403, origin);
  equal(status(await request("GET /api/status", { "Sec-Fetch-Site": "cross-site", Cookie: cookie })), 403, "cross-site");
});
await check("a request without the token is refused", async () => {
  for (const path of ["/", "/page.js", "/api/status", "/api/stacks?trace=0", "/?token=", `/?token=${"0".repeat(32)}`]) {
    const answer = await request(`GET ${path}`);
    equal(status(answer), 403, path);
    has(answer, "address that heaptrack printed");
  }
});
await check(".. leads nowhere, and only named sources are read", async () => {
  for (const path of ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/api/../../etc/passwd", "/page.js/../../../etc/passwd"]) {
    const answer = await request(`GET ${path}`, { Cookie: cookie });
    holds(status(answer) === 404 || status(answer) === 400, `${path}: ${status(answer)}`);
    holds(!answer.includes("root:"), "not the file");
  }
  for (const file of ["/etc/passwd", "../../../../etc/passwd", "/proc/self/environ", ""]) {
    const answer = await request(`GET /api/source-text?trace=0&file=${encodeURIComponent(file)}`, { Cookie: cookie });
    equal(status(answer), 403, file);
  }
  for (const number of ["99", "-1", "x"]) holds(status(await request(`GET /api/stacks?trace=${number}`, { Cookie: cookie })) >= 400, number);
});
await check("a body of 1 GB is refused long before all of it is sent", async () => {
  for (const line of ["POST /api/suppressions", "GET /api/status", "POST /api/stacks"]) {
    let sent = 0;
    const answer = await raw(`${line} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nCookie: ${cookie}\r\nContent-Length: 1073741824\r\n\r\n`, (socket) => {
      const chunk = Buffer.alloc(1 << 16);
      const more = () => {
        while (!socket.destroyed && sent < 1 << 30) {
          sent += chunk.length;
          if (!socket.write(chunk)) return socket.once("drain", more);
        }
      };
      more();
    });
    // A client that continues to send may lose the answer, because the connection is closed anyway.
    holds(answer === "" || status(answer) === 413 || status(answer) === 405, `${line}: ${answer.slice(0, 80)}`);
    holds(sent < 1 << 28, `${sent} bytes were taken`);
    const patient = await raw(`${line} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nCookie: ${cookie}\r\nContent-Length: 1073741824\r\n\r\n`);
    holds(status(patient) === 413 || status(patient) === 405, `${line}: ${patient.slice(0, 80)}`);
  }
  const endless = await raw(`POST /api/suppressions HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nTransfer-Encoding: chunked\r\n\r\n`, (socket) => {
    const more = () => {
      while (!socket.destroyed) if (!socket.write(`10000\r\n${"x".repeat(65536)}\r\n`)) return socket.once("drain", more);
    };
    more();
  });
  holds(endless === "" || status(endless) === 413, `chunked: ${endless.slice(0, 80)}`);
});
await check("other methods, bad queries and unknown views are refused", async () => {
  for (const method of ["PUT", "DELETE", "OPTIONS", "PATCH"]) equal(status(await request(`${method} /api/status`, { Cookie: cookie })), 405, method);
  const bad = await request("GET /api/profile?trace=0&from=soon", { Cookie: cookie });
  equal(status(bad), 400, "bad query");
  has(bad, "not a valid time");
  equal(status(await request("GET /api/nothing", { Cookie: cookie })), 404, "no such view");
});
await check("--listen on another address says what that means", async () => {
  const other = await serve([trace("orders")], "--listen", "0.0.0.0");
  has(other.said(), "anyone who knows the token");
  other.child.kill();
});
server.child.kill();
