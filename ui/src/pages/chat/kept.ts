/** What the page finds again when its window comes back, as text of at most 64 KiB. */

export interface Place {
  message: number;
  /** Pixels from the top of the view to the top of the message. */
  offset: number;
  /** The message is a search's result: it gets attention. */
  found?: boolean;
}

export interface Kept {
  open: number | null;
  /** What is typed and not sent, by conversation. */
  drafts: Record<string, string>;
  side: boolean;
  page: string;
  /** Of the open conversation; `null`: at its end. */
  place: Place | null;
}

const ROOM = 60_000;
const EMPTY: Kept = { open: null, drafts: {}, side: true, page: "chat", place: null };

const size = (text: string) => new TextEncoder().encode(text).length;

/** Older drafts go first when there is no room for all; a draft is never cut. */
export function writeKept(kept: Kept): string {
  const drafts = Object.entries(kept.drafts);
  for (;;) {
    const text = JSON.stringify({ ...kept, drafts: Object.fromEntries(drafts) });
    if (size(text) <= ROOM || drafts.length === 0) return text;
    drafts.shift();
  }
}

/** Whatever is not of the right shape is as if it were not there. */
export function readKept(text: string): Kept {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return EMPTY;
  }
  if (typeof value !== "object" || value === null) return EMPTY;
  const { open, drafts, side, page, place } = value as Record<string, unknown>;
  const texts = typeof drafts === "object" && drafts !== null ? Object.entries(drafts) : [];
  return {
    open: typeof open === "number" ? open : null,
    drafts: Object.fromEntries(texts.filter((entry): entry is [string, string] => typeof entry[1] === "string")),
    side: typeof side === "boolean" ? side : true,
    page: typeof page === "string" ? page : "chat",
    place: isPlace(place) ? { message: place.message, offset: place.offset } : null,
  };
}

function isPlace(value: unknown): value is Place {
  if (typeof value !== "object" || value === null) return false;
  const { message, offset } = value as Record<string, unknown>;
  return typeof message === "number" && typeof offset === "number";
}
