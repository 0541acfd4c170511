/**
 * The only file that knows how the page reaches the engine. `Backend` is implemented here over Tauri and, for browser tests
 * and for working on the page, by `dev/backend.ts` without it. Types come from engine/src/api.rs.
 */
import { Channel, invoke, type InvokeArgs } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";
import { asFailure, type Failure } from "./failure";
import type {
  Activity,
  CatalogueEntry,
  ConversationEntry,
  EndpointState,
  Event,
  FileCheck,
  HubModel,
  ModelEntry,
  Pull,
  PullPlan,
  Settings,
  Thread,
  TokenState,
  Turn,
} from "./gen/api";

export type { Failure };

export interface AppInfo {
  version: string;
  mlx_version: string;
  /** `macos` or `linux`. */
  platform: string;
  /** A menu-bar icon is there (not every Linux desktop has a place for one). */
  tray: boolean;
  /** Why the global shortcut does not work. */
  shortcut_problem: string | null;
  /** The name of the very small model that comes with rMLX. */
  demo: string;
  /** Of this machine, in bytes; `null`: not known. */
  memory: number | null;
}

/** Bytes. */
export interface Progress {
  done: number;
  total: number;
}

/** A change that the shell tells of by itself. */
export interface Changes {
  activity: Activity;
  endpoint: EndpointState;
  settings: Settings;
  /** Conversations were changed, here or by another process. */
  conversations: null;
  /** All downloads; `null`: too many for one message, `pulls` has them. */
  pulls: Pull[] | null;
}

export interface Backend {
  info(): Promise<AppInfo>;
  activity(): Promise<Activity>;

  models(): Promise<ModelEntry[]>;
  /** Resolves when the model is resident; `on` gets `Loading` events. */
  load(model: string, on: (events: Event[]) => void): Promise<void>;
  /** Ends the load that was asked for last: it is rejected with the code `cancelled`. */
  stopLoad(): Promise<void>;
  /** Gives the memory back; refused while answers are made. */
  unload(): Promise<void>;
  /** Hashes the files; rejected with `cancelled` after `stopVerify`. */
  verify(model: string, on: (progress: Progress) => void): Promise<FileCheck[]>;
  stopVerify(): Promise<void>;
  /** Resolves to the bytes that are free now. */
  removeModel(model: string): Promise<number>;

  catalogue(): Promise<CatalogueEntry[]>;
  searchHub(words: string): Promise<HubModel[]>;
  /** What `ORG/NAME[@REVISION]` would take; nothing is fetched. */
  plan(model: string): Promise<PullPlan>;
  /** Begins a download, or goes on with it. `anyway`: although the plan says that it would not run here. */
  pull(model: string, anyway: boolean): Promise<Pull>;
  pulls(): Promise<Pull[]>;
  pausePull(model: string): Promise<void>;
  /** Ends it and removes what is here of it. */
  cancelPull(model: string): Promise<void>;
  /** Of the hub's access token, which never comes back to the page. */
  token(): Promise<TokenState>;
  /** `null` forgets it. */
  setToken(token: string | null): Promise<TokenState>;

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

// ---- over Tauri --------------------------------------------------------------------------------------------------------------

/** Every rejection is a `Failure`: the shell's own, or what Tauri says of a command that it refused. */
async function call<T>(command: string, args?: InvokeArgs): Promise<T> {
  try {
    return await invoke<T>(command, args);
  } catch (e) {
     
    throw asFailure(e);
  }
}

/** A command that sends events while it runs. Resolves after the last of them has been handled. */
function streaming<T, E>(command: string, args: Record<string, unknown>, on: (events: E) => void): Promise<T> {
  const onEvents = new Channel<E>();
  onEvents.onmessage = on;
  return call<T>(command, { ...args, onEvents });
}

export const shell: Backend = {
  info: () => call("app_info"),
  activity: () => call("activity_get"),
  models: () => call("models_list"),
  load: (model, on) => streaming("model_load", { model }, on),
  stopLoad: () => call("model_load_stop"),
  unload: () => call("model_unload"),
  verify: (model, on) => streaming("model_verify", { model }, on),
  stopVerify: () => call("model_verify_stop"),
  removeModel: (model) => call("model_remove", { model }),
  catalogue: () => call("catalogue_list"),
  searchHub: (words) => call("hub_search", { words }),
  plan: (model) => call("pull_plan", { model }),
  pull: (model, anyway) => call("pull_start", { model, options: { anyway } }),
  pulls: () => call("pulls_list"),
  pausePull: (model) => call("pull_pause", { model }),
  cancelPull: (model) => call("pull_cancel", { model }),
  token: () => call("token_get"),
  setToken: (token) => call("token_set", { token }),
  conversations: (search) => call("conversations_list", { search: search ?? null }),
  conversation: (id) => call("conversation_get", { id }),
  rename: (id, title) => call("conversation_rename", { id, title }),
  delete: (id) => call("conversation_delete", { id }),
  restore: (id) => call("conversation_restore", { id }),
  selectVersion: (conversation, message) => call("conversation_select", { conversation, message }),
  chat: (turn) => call("chat_send", { turn }),
  follow: (conversation, on) => streaming("chat_follow", { conversation }, on),
  stop: (conversation) => call("chat_stop", { conversation }),
  settings: () => call("settings_get"),
  setSettings: (patch) => call("settings_set", { patch }),
  endpoint: () => call("endpoint_get"),
  setEndpoint: (on, port) => call("endpoint_set", { on, port: port ?? null }),
  openLink: (url) => call("link_open", { url }),
  pageState: () => call("page_state_get"),
  setPageState: (state) => call("page_state_set", { state }),
  on: (change, handler) => listen<never>(change, (event) => { handler(event.payload); }),
};
