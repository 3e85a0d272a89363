// The worker of the viewer.
import type { Requests } from "../work/protocol";
import { serve } from "../work/serve";
import { Browser, type Carried } from "./source";

let browser: Browser | undefined;
const opened = (): Browser => {
  if (!browser) throw new Error("no engine");
  return browser;
};

serve(({ engine, carried }: { engine: ArrayBuffer; carried: Carried | undefined }) => (browser = new Browser(engine, carried)), {
  add: ({ file }: Requests["add"]["args"]) => opened().add(file),
  rules: ({ file }: Requests["rules"]["args"]) => opened().rules(file),
  remove: ({ trace }: Requests["remove"]["args"]) => opened().remove(trace),
});
