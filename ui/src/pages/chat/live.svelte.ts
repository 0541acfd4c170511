/** One running answer, as the page shows it. */
import type { ErrorInfo, Event, LoadStage } from "../../gen/api";
import { OncePerFrame } from "../../shared/frames";
import { Sentences } from "../../shared/sentences";
import { strings } from "../../strings";

export type Phase =
  | { kind: "waiting" }
  | { kind: "loading"; stage: LoadStage; done: number; total: number }
  | { kind: "prefill"; done: number; total: number }
  | { kind: "text" };

const SAY_EVERY_MS = 800;

export class Live {
  text = $state("");
  phase = $state.raw<Phase>({ kind: "waiting" });
  stopping = $state(false);
  failed: ErrorInfo | null = null;

  private received = "";
  private begun = false;
  private next: Phase = { kind: "waiting" };
  private readonly frame = new OncePerFrame(() => {
    this.show();
  });
  private readonly sentences = new Sentences(strings.say);
  private saidAt = 0;

  constructor(
    readonly message: number,
    readonly model: string,
    /** What is already known of the text. */
    text: string,
    private readonly say: (text: string) => void,
  ) {
    this.text = text;
    this.received = text;
  }

  take(events: Event[]): void {
    for (const event of events) {
      switch (event.type) {
        case "loading":
          if (this.next.kind !== "loading") this.say(strings.load.announce(this.model));
          this.next = { kind: "loading", stage: event.stage, done: event.done, total: event.total };
          break;
        case "loaded":
          this.next = { kind: "waiting" };
          break;
        case "prefill":
          this.next = { kind: "prefill", done: event.done, total: event.total };
          break;
        case "text":
          // The first one carries the text so far.
          this.received = this.begun ? this.received + event.delta : event.delta;
          this.begun = true;
          if (this.received !== "") this.next = { kind: "text" };
          break;
        case "failed":
          this.failed = { code: event.code, message: event.message };
          break;
        case "token":
        case "finished":
          break;
      }
    }
    this.frame.ask();
  }

  private show(): void {
    this.text = this.received;
    this.phase = this.next;
    const now = performance.now();
    if (now - this.saidAt < SAY_EVERY_MS) return;
    this.saidAt = now;
    this.say(this.sentences.next(this.text, false).join(" "));
  }

  /** After the last event. */
  end(): void {
    this.frame.now();
    this.text = this.received;
    this.say(this.sentences.next(this.text, true).join(" "));
  }
}
