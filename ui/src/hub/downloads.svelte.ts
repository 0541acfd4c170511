/** The downloads, as every page sees them: what runs, what was said of it, and how fast the line was. */
import type { Pull, PullPhase } from "../gen/api";
import type { Backend } from "../ipc";
import { percent } from "../shared/format";
import { strings } from "../strings";

/** What the backend calls a download by. */
export const keyOf = (pull: Pick<Pull, "repo" | "revision">): string =>
  pull.revision === "main" ? pull.repo : `${pull.repo}@${pull.revision}`;

const ENDED: PullPhase[] = ["paused", "done", "failed"];

/** Something is still to happen by itself. */
export const isActive = (pull: Pull): boolean => !ENDED.includes(pull.phase);

/** Each try while the network is away looks like a transfer for a moment: it waits until a byte has come. */
function stillWaits(pull: Pull, before: Pull | undefined): Pull {
  const trying = pull.phase === "listing" || (pull.phase === "fetching" && pull.rate === 0);
  return before?.phase === "waiting" && trying ? { ...pull, phase: "waiting", error: before.error } : pull;
}

export class Downloads {
  all = $state.raw<Pull[]>([]);
  /** Bytes a second, as they were measured last; `null` before any were. */
  rate = $state<number | null>(null);
  /** Became ready while this page was open, newest first; the user has not answered yet. */
  ready = $state.raw<Pull[]>([]);
  private hidden = $state.raw<string[]>([]);
  private known = false;

  constructor(
    private readonly backend: Backend,
    private readonly say: (text: string) => void,
  ) {}

  async begin(): Promise<void> {
    await this.backend.on("pulls", (pulls) => {
      if (pulls) this.take(pulls);
      else void this.read();
    });
    await this.read();
  }

  async read(): Promise<void> {
    // Without it the page still works; a change is told of later.
    const pulls = await this.backend.pulls().catch(() => null);
    if (pulls) this.take(pulls);
  }

  private take(told: Pull[]): void {
    const before = new Map(this.all.map((pull) => [keyOf(pull), pull]));
    const pulls = told.map((pull) => stillWaits(pull, before.get(keyOf(pull))));
    for (const pull of pulls) {
      const key = keyOf(pull);
      const was = before.get(key)?.phase ?? null;
      // A lull is no rate.
      if (pull.phase === "fetching" && pull.rate > 0) this.rate = pull.rate;
      if (!this.known || was === pull.phase) continue;
      const help = pull.error ? strings.errorHelp(pull.error.code).title : strings.unknownError.title;
      this.say(strings.models.said(pull.repo, pull.phase, was, help));
      if (pull.phase === "done") this.ready = [pull, ...this.ready.filter((other) => keyOf(other) !== key)];
      else this.hidden = this.hidden.filter((other) => other !== key);
    }
    this.all = pulls;
    this.known = true;
  }

  /** What the list shows. */
  get shown(): Pull[] {
    return this.all.filter((pull) => !(pull.phase === "done" && this.hidden.includes(keyOf(pull))));
  }

  get active(): Pull[] {
    return this.all.filter(isActive);
  }

  /** Of all that run, where the hub has said how large they are. */
  get percent(): number | null {
    const sized = this.active.filter((pull) => pull.total !== null);
    const sum = (of: (pull: Pull) => number) => sized.reduce((all, pull) => all + of(pull), 0);
    return percent(sum((pull) => pull.done), sum((pull) => pull.total ?? 0));
  }

  of(repo: string): Pull | null {
    return this.all.find((pull) => pull.repo === repo) ?? null;
  }

  hide(pull: Pull): void {
    this.hidden = [...this.hidden, keyOf(pull)];
    this.answered(pull);
  }

  /** The user saw that it is ready. */
  answered(pull: Pull): void {
    this.ready = this.ready.filter((other) => keyOf(other) !== keyOf(pull));
  }

  /** Seconds that `bytes` take at the rate that was measured; `null` where none was. */
  estimate(bytes: number): number | null {
    return this.rate !== null && this.rate > 0 ? bytes / this.rate : null;
  }

  async start(model: string, anyway: boolean): Promise<void> {
    await this.backend.pull(model, anyway);
  }

  async resume(pull: Pull): Promise<void> {
    // What was begun in spite of a problem is remembered by the engine.
    await this.backend.pull(keyOf(pull), false);
  }

  async pause(pull: Pull): Promise<void> {
    await this.backend.pausePull(keyOf(pull));
  }

  async cancel(pull: Pull): Promise<void> {
    await this.backend.cancelPull(keyOf(pull));
    // Of one that no process was fetching, nothing is told.
    await this.read();
    this.answered(pull);
    this.say(strings.models.cancelled(pull.repo));
  }
}
