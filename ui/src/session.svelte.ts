/** What all pages share: the backend, the settings, and how the page speaks to its user. */
import { Downloads } from "./hub/downloads.svelte";
import type { AppInfo, Backend, DeepPartial } from "./ipc";
import type { Activity, EndpointState, Settings } from "./gen/api";
import { strings } from "./strings";

export class Session {
  info = $state.raw<AppInfo | null>(null);
  settings = $state.raw<Settings | null>(null);
  endpoint = $state.raw<EndpointState>({ state: "off" });
  activity = $state.raw<Activity>({ state: "idle", model: null, loading: null, running: 0, error: null });

  /** For the live region: what was said last. Each has an id, so that the same text can be said twice. */
  said = $state.raw<{ id: number; text: string }[]>([]);
  /** The address that waits for the user's yes. */
  link = $state<string | null>(null);
  /** The repository (`ORG/NAME[@REVISION]`) whose plan is looked at. */
  getting = $state<string | null>(null);
  readonly downloads: Downloads;
  private sayings = 0;
  private listening = false;

  constructor(readonly backend: Backend) {
    this.downloads = new Downloads(backend, (text) => {
      this.say(text);
    });
  }

  get mac(): boolean {
    return this.info ? this.info.platform === "macos" : navigator.platform.startsWith("Mac");
  }

  /** Rejects when the settings cannot be read; the rest may fail without harm. */
  async begin(): Promise<void> {
    const { backend } = this;
    if (!this.listening) {
      this.listening = true;
      await this.listen();
    }
    const [info, settings] = await Promise.all([backend.info(), backend.settings()]);
    this.info = info;
    this.settings = settings;
    // Without these the page still works; a change of theirs is told of later.
    this.endpoint = await backend.endpoint().catch(() => this.endpoint);
    this.activity = await backend.activity().catch(() => this.activity);
  }

  private async listen(): Promise<void> {
    const { backend } = this;
    await Promise.all([
      backend.on("settings", (settings) => (this.settings = settings)),
      backend.on("endpoint", (endpoint) => (this.endpoint = endpoint)),
      backend.on("activity", (activity) => (this.activity = activity)),
      this.downloads.begin(),
    ]);
  }

  /** As people should call it: the demo says that it is one. */
  nameOf(model: string): string {
    return model === this.info?.demo ? strings.models.demo : model;
  }

  async change(patch: DeepPartial<Settings>): Promise<void> {
    this.settings = await this.backend.setSettings(patch);
  }

  /** Announces, politely. */
  say(text: string): void {
    if (text === "") return;
    this.sayings += 1;
    this.said = [...this.said.slice(-7), { id: this.sayings, text }];
  }

  async copy(text: string): Promise<boolean> {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text);
    }
  }
}

/** For web views that refuse the clipboard interface. */
function copyBySelection(text: string): boolean {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
   
  const done = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}
