/** Collects calls and runs the work once per animation frame, or by a timer where frames do not come (a hidden window). */
export class OncePerFrame {
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly work: () => void) {}

  ask(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.now();
    });
    this.timer = setTimeout(() => {
      this.now();
    }, 250);
  }

  /** Runs what was asked for, at once. */
  now(): void {
    if (this.frame === 0) return;
    this.cancel();
    this.work();
  }

  cancel(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = 0;
  }
}
