/** Which suggestions are shown, and what a typed text means. */
import type { CatalogueEntry, Task } from "../../gen/api";

export function tasksOf(entries: CatalogueEntry[]): Task[] {
  const order: Task[] = ["chat", "vision", "speech", "embedding"];
  return order.filter((task) => entries.some((entry) => entry.task === task));
}

/**
 * The recommended first. `memory` in bytes: of what fits, the largest first, since that makes the most of this machine; `null`:
 * whatever it needs, in the list's own order.
 */
export function fitting(entries: CatalogueEntry[], task: Task | null, memory: number | null): CatalogueEntry[] {
  const fits = (entry: CatalogueEntry) => memory === null || entry.memory_gb * 1e9 <= memory;
  const shown = entries.filter((entry) => (task === null || entry.task === task) && fits(entry));
  if (memory !== null) shown.sort((a, b) => b.memory_gb - a.memory_gb);
  return [...shown.filter((entry) => entry.recommended), ...shown.filter((entry) => !entry.recommended)];
}

/** `ORG/NAME[@REVISION]`, where the text is that, or the address of a model's page; else `null`. */
export function repository(text: string): string | null {
  const bare = text.trim().replace(/^https?:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\//i, "");
  const found = /^([\w.-]+\/[\w.-]+?)(?:\.git)?(?:(?:@|\/tree\/)([\w./-]+))?\/?$/.exec(bare);
  if (!found?.[1] || bare === "") return null;
  const revision = found[2]?.replace(/\/$/, "");
  return revision === undefined || revision === "" || revision === "main" ? found[1] : `${found[1]}@${revision}`;
}
