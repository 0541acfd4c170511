/** Which messages of a long thread are rendered: a window that moves with the view. */

export interface View {
  first: number;
  /** One past the last. `null`: to the end, whatever comes. */
  last: number | null;
}

export interface Bounds {
  first: number;
  last: number;
}

const OPEN = 40;
const STEP = 24;
/** Never more than this. */
export const MOST = 88;

export function trimmed(view: View, all: number): Bounds {
  const last = Math.min(view.last ?? all, all);
  const first = Math.max(0, Math.min(view.first, last));
  return { first: Math.max(first, last - MOST), last };
}

/** At the end. What was rendered before it stays while it is not too much, so that nothing jumps. */
export function tailWindow(all: number, now?: View): View {
  const first = Math.max(0, all - OPEN);
  if (now?.last === null && now.first <= all && all - now.first <= MOST) return { first: Math.min(now.first, first), last: null };
  return { first, last: null };
}

export function aroundWindow(index: number, all: number): View {
  const first = Math.max(0, index - OPEN / 2);
  const last = first + OPEN;
  return { first, last: last >= all ? null : last };
}

export function shiftUp(bounds: Bounds, all: number): View {
  const first = Math.max(0, bounds.first - STEP);
  const last = Math.min(bounds.last, first + MOST);
  return { first, last: last >= all ? null : last };
}

export function shiftDown(bounds: Bounds, all: number): View {
  const last = Math.min(all, bounds.last + STEP);
  return { first: Math.max(bounds.first, last - MOST), last: last >= all ? null : last };
}
