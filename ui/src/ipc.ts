/**
 * The only file that knows how the page reaches the engine. `Backend` is implemented here over Tauri and, for browser tests
 * and for working on the page, by `dev/backend.ts` without it. Types come from engine/src/api.rs.
 */
import type {
  Activity,
  ConversationEntry,
  EndpointState,
  Event,
  ModelEntry,
  Settings,
  Thread,
  Turn,
} from "./gen/api";

/** What a rejected call carries; `code` is stable, `message` is for humans. */
export interface Failure {
  code: string;
  message: string;
}

export interface AppInfo {
  version: string;
  mlx_version: string;
  /** `macos` or `linux`. */
  platform: string;
  /** A menu-bar icon is there (not every Linux desktop has a place for one). */
  tray: boolean;
  /** Why the global shortcut does not work. */
  shortcut_problem: string | null;
}

/** A change that the shell tells of by itself. */
export interface Changes {
  activity: Activity;
  endpoint: EndpointState;
  settings: Settings;
  /** Conversations were changed, here or by another process. */
  conversations: null;
}

export interface Backend {
  info(): Promise<AppInfo>;
  activity(): Promise<Activity>;

  models(): Promise<ModelEntry[]>;
  /** Resolves when the model is resident; `on` gets `Loading` events. */
  load(model: string, on: (events: Event[]) => void): Promise<void>;

  conversations(search?: string): Promise<ConversationEntry[]>;
  conversation(id: number): Promise<Thread>;
  rename(id: number, title: string): Promise<void>;
  delete(id: number): Promise<void>;
  restore(id: number): Promise<void>;
  selectVersion(conversation: number, message: number): Promise<Thread>;

  /** Saves the question and begins the answer, the thread's last message. */
  chat(turn: Turn): Promise<Thread>;
  /**
   * The events of a running answer, first of all its text so far. Resolves after the last event: `true`; `false` when no
   * answer was running.
   */
  follow(conversation: number, on: (events: Event[]) => void): Promise<boolean>;
  stop(conversation: number): Promise<boolean>;

  settings(): Promise<Settings>;
  /** Only the fields that change. */
  setSettings(patch: DeepPartial<Settings>): Promise<Settings>;
  endpoint(): Promise<EndpointState>;
  /** Switches it; a port, when given, is kept as the setting. */
  setEndpoint(on: boolean, port?: number): Promise<EndpointState>;

  /** After the user confirmed it: http, https and mailto only. */
  openLink(url: string): Promise<void>;
  /** What the page wants to find again when its window comes back: at most 64 KiB, kept in memory only. */
  pageState(): Promise<string>;
  setPageState(state: string): Promise<void>;

  on<K extends keyof Changes>(change: K, call: (value: Changes[K]) => void): Promise<() => void>;
}

export type DeepPartial<T> = { [K in keyof T]?: T[K] extends object ? DeepPartial<T[K]> : T[K] };
