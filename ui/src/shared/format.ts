/** Numbers and times as the user's locale writes them. */
const WHOLE = new Intl.NumberFormat();
const TENTHS = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

export const count = (n: number): string => WHOLE.format(Math.round(n));

export const tenths = (n: number): string => (n >= 100 ? WHOLE.format(Math.round(n)) : TENTHS.format(n));

/** Decimal units, as macOS shows them. */
export function bytes(n: number): string {
  if (n >= 999_500_000) return `${TENTHS.format(n / 1e9)} GB`;
  if (n >= 999_500 && n < 9_950_000) return `${TENTHS.format(n / 1e6)} MB`;
  if (n >= 999_500) return `${WHOLE.format(Math.round(n / 1e6))} MB`;
  return `${WHOLE.format(Math.ceil(n / 1e3))} kB`;
}

/** How much of what: `1.2 of 4.6 GB`; without the whole where that is not known. */
export function size(done: number, total: number | null): string {
  if (total === null) return bytes(done);
  const [whole, part] = [bytes(total), bytes(Math.min(done, total))];
  const unit = whole.slice(whole.lastIndexOf(" "));
  return part.endsWith(unit) ? `${part.slice(0, -unit.length)} of ${whole}` : `${part} of ${whole}`;
}

/** Roughly, for people who wait. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds > 99 * 3600) return "days";
  if (seconds < 60) return "less than a minute";
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return minutes === 1 ? "about 1 minute" : `about ${WHOLE.format(minutes)} minutes`;
  return `about ${WHOLE.format(Math.round(minutes / 60))} hours`;
}

/** Whole percent: 100 only when all is there; `null` where the whole is not known. */
export function percent(done: number, total: number | null): number | null {
  if (total === null || total <= 0) return null;
  return Math.max(0, Math.min(100, Math.floor((done / total) * 100)));
}

/** Whole days between two moments, by the calendar. */
export function daysAgo(ms: number, now: number): number {
  const day = (at: number) => new Date(at).setHours(0, 0, 0, 0);
  return Math.round((day(now) - day(ms)) / 86_400_000);
}

export const monthOf = (ms: number): string => new Date(ms).toLocaleDateString(undefined, { month: "long", year: "numeric" });

export const dateTime = (ms: number): string => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
