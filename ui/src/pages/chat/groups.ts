/** The list of conversations in groups by day, newest first. */
import type { ConversationEntry } from "../../gen/api";
import { daysAgo, monthOf } from "../../shared/format";
import { strings } from "../../strings";

export interface Group {
  title: string;
  entries: ConversationEntry[];
}

function groupOf(entry: ConversationEntry, now: number): string {
  const days = daysAgo(entry.updated_ms, now);
  if (days <= 0) return strings.side.today;
  if (days === 1) return strings.side.yesterday;
  if (days < 7) return strings.side.week;
  if (days < 30) return strings.side.month;
  return monthOf(entry.updated_ms);
}

export function byDay(list: ConversationEntry[], now: number): Group[] {
  const groups = new Map<string, ConversationEntry[]>();
  for (const entry of [...list].sort((a, b) => b.updated_ms - a.updated_ms)) {
    const title = groupOf(entry, now);
    const group = groups.get(title);
    if (group) group.push(entry);
    else groups.set(title, [entry]);
  }
  return [...groups].map(([title, entries]) => ({ title, entries }));
}
