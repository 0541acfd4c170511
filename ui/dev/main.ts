import type { Stub } from "./backend";

declare global {
  interface Window {
    stub: Stub;
    hacked?: number;
  }
}

let begun = false;

/** As src/main.ts, over the stub. */
async function begin(): Promise<void> {
  if (begun) return;
  begun = true;
  const [{ start }, { Stub }] = await Promise.all([import("../src/start"), import("./backend")]);
  window.stub = new Stub(new URLSearchParams(location.search));
  start(window.stub);
}

requestAnimationFrame(() => setTimeout(begin));
setTimeout(begin, 100);
