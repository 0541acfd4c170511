/** Numbers and times as the user's locale writes them. */
const WHOLE = new Intl.NumberFormat();
const TENTHS = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

export const count = (n: number): string => WHOLE.format(Math.round(n));

export const tenths = (n: number): string => (n >= 100 ? WHOLE.format(Math.round(n)) : TENTHS.format(n));

/** Decimal units, as macOS shows them. */
export function bytes(n: number): string {
  if (n >= 1e9) return `${TENTHS.format(n / 1e9)} GB`;
  return `${WHOLE.format(Math.round(n / 1e6))} MB`;
}

/** Whole days between two moments, by the calendar. */
export function daysAgo(ms: number, now: number): number {
  const day = (at: number) => new Date(at).setHours(0, 0, 0, 0);
  return Math.round((day(now) - day(ms)) / 86_400_000);
}

export const monthOf = (ms: number): string => new Date(ms).toLocaleDateString(undefined, { month: "long", year: "numeric" });

export const dateTime = (ms: number): string => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
