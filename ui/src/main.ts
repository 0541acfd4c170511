/**
 * The first frame is the still shell of index.html; the page's code, many times its size, comes right after it. A window that
 * is not shown has no frames, so time counts too.
 */
let begun = false;

async function begin(): Promise<void> {
  if (begun) return;
  begun = true;
  const [{ start }, { shell }] = await Promise.all([import("./start"), import("./ipc")]);
  start(shell);
}

requestAnimationFrame(() => setTimeout(begin));
setTimeout(begin, 100);
