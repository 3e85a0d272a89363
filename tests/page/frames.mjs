// Measures how much script the page's main thread runs in a frame, from Chromium's own trace.

const SCRIPT = new Set(["FunctionCall", "EvaluateScript", "FireAnimationFrame", "RunMicrotasks", "TimerFire", "EventDispatch"]);

/** The most CPU time, in milliseconds, that scripts of the main thread took in one frame while `action` ran. */
export const longestFrame = async (page, action) => {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline", "devtools.timeline.frame", "disabled-by-default-devtools.timeline.frame", "__metadata"] } });
  await action();
  const done = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await done;
  await session.detach();
  const main = new Set(events.filter((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain").map((event) => `${event.pid} ${event.tid}`));
  const own = events.filter((event) => main.has(`${event.pid} ${event.tid}`)).sort((a, b) => a.ts - b.ts);
  let [most, sum, end] = [0, 0, 0];
  for (const event of own) {
    if (event.name === "BeginMainThreadFrame") sum = 0;
    // A script that another script calls is part of the caller.
    if (event.ph !== "X" || !SCRIPT.has(event.name) || event.ts < end) continue;
    end = event.ts + event.dur;
    sum += (event.tdur ?? event.dur) / 1000;
    most = Math.max(most, sum);
  }
  return most;
};
