/**
 * Enter that confirms an input method's composition must not send. Browsers tell it in three ways: `isComposing`, key code 229,
 * and, in WebKit, neither: `compositionend` comes first and the key event of the same press right after it.
 */
const SAME_PRESS_MS = 50;

interface Key {
  isComposing: boolean;
  keyCode: number;
  timeStamp: number;
}

export class CompositionGuard {
  private composing = false;
  private endedAt = Number.NEGATIVE_INFINITY;

  start(): void {
    this.composing = true;
  }

  end(timeStamp: number): void {
    this.composing = false;
    this.endedAt = timeStamp;
  }

  /** The text stays as the input method left it: an Enter that comes as a plain key would break the line. */
  keep(event: Key & { key: string; preventDefault(): void }): void {
    if (event.key === "Enter" && event.keyCode !== 229) event.preventDefault();
  }

  /** The key belongs to the input method. */
  owns(key: Key): boolean {
    return this.composing || key.isComposing || key.keyCode === 229 || key.timeStamp - this.endedAt < SAME_PRESS_MS;
  }
}
