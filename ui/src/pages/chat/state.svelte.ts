/** The chat page's state: which conversation is open, what is being answered, what is typed. */
import { SvelteMap } from "svelte/reactivity";
import { asFailure, type Failure } from "../../failure";
import type { Ask, ConversationEntry, LoadStage, ModelEntry, Thread } from "../../gen/api";
import type { Session } from "../../session.svelte";
import { strings } from "../../strings";
import { Live } from "./live.svelte";
import { type Kept, type Place, readKept, writeKept } from "./kept";

export interface Trouble {
  title: string | null;
  failure: Failure;
  retry: (() => void) | null;
}

const NEW = "new";
const SAVE_AFTER_MS = 250;

export class ChatState {
  /** `null`: not known yet. */
  models = $state.raw<ModelEntry[] | null>(null);
  /** Why they could not be read the last time. */
  unread = $state.raw<Failure | null>(null);
  list = $state.raw<ConversationEntry[]>([]);
  listed = $state(false);
  query = $state("");
  /** Of the search; `null` while there is none. */
  results = $state.raw<ConversationEntry[] | null>(null);

  openId = $state<number | null>(null);
  private stored = $state.raw<Thread | null>(null);
  lives = new SvelteMap<number, Live>();
  /** A question on its way to the engine. */
  pending = $state.raw<{ conversation: number | null; text: string } | null>(null);
  sending = $state(false);
  trouble = $state.raw<Trouble | null>(null);
  draft = $state("");
  picked = $state<string | null>(null);
  loading = $state.raw<{ model: string; stage: LoadStage; done: number; total: number } | null>(null);
  deleted = $state.raw<{ id: number; title: string; wasOpen: boolean } | null>(null);
  sideOpen = $state(true);
  /** Where the thread is to be shown when it opens; `null`: at its end. */
  goal = $state.raw<Place | null>(null);

  private drafts = new Map<string, string>();
  private places = new Map<number, Place>();
  private saver: ReturnType<typeof setTimeout> | undefined;
  private refresher: ReturnType<typeof setTimeout> | undefined;
  private searches = 0;
  private listening = false;
  private page = "chat";

  constructor(readonly session: Session) {}

  private get backend() {
    return this.session.backend;
  }

  /** The open conversation; `null` for a new one and while it is being read. */
  get thread(): Thread | null {
    return this.stored && this.stored.conversation.id === this.openId ? this.stored : null;
  }

  get live(): Live | null {
    return this.openId === null ? null : (this.lives.get(this.openId) ?? null);
  }

  /** The model of the next answer. */
  get model(): string | null {
    const runs = (this.models ?? []).filter((model) => model.problem === null);
    const named = (name: string | null | undefined) => runs.find((model) => model.name === name)?.name;
    const answers = runs.find((model) => model.has_chat_template) ?? runs[0];
    return (
      named(this.picked) ??
      named(this.thread?.conversation.model) ??
      named(this.session.settings?.model) ??
      named(this.session.activity.model) ??
      answers?.name ??
      null
    );
  }

  /** Nothing here chats but the demo. */
  get onlyDemo(): boolean {
    const chats = (this.models ?? []).filter((model) => model.problem === null && model.has_chat_template);
    return chats.length > 0 && chats.every((model) => model.name === this.session.info?.demo);
  }

  get busy(): boolean {
    return this.sending || this.live !== null;
  }

  /** Reads everything; returns the page that was shown last. */
  async begin(): Promise<string> {
    if (!this.listening) {
      this.listening = true;
      await this.backend.on("conversations", () => {
        this.soonRefresh();
      });
    }
    const kept = readKept(await this.backend.pageState().catch(() => ""));
    this.sideOpen = kept.side;
    this.drafts = new Map(Object.entries(kept.drafts));
    if (kept.open !== null) {
      if (kept.place) this.places.set(kept.open, kept.place);
      this.openId = kept.open;
    }
    this.draft = this.drafts.get(this.draftKey()) ?? "";
    this.page = kept.page;
    await Promise.all([this.readModels(), this.refresh(), kept.open === null ? null : this.open(kept.open)]);
    return kept.page;
  }

  async readModels(): Promise<void> {
    try {
      this.models = await this.backend.models();
      this.unread = null;
    } catch (e) {
      this.models ??= [];
      this.unread = asFailure(e);
      this.report(this.unread, null, () => void this.readModels());
    }
  }

  async refresh(): Promise<void> {
    try {
      this.list = await this.backend.conversations();
      this.listed = true;
    } catch (e) {
      this.report(asFailure(e), null, () => void this.refresh());
    }
    if (this.results) await this.search(this.query);
  }

  /** Conversations changed somewhere; several changes are read once. */
  private soonRefresh(): void {
    clearTimeout(this.refresher);
    this.refresher = setTimeout(() => void this.refreshAll(), 80);
  }

  private async refreshAll(): Promise<void> {
    await this.refresh();
    const open = this.thread;
    if (!open || this.lives.has(open.conversation.id) || this.sending) return;
    const entry = this.list.find((e) => e.id === open.conversation.id);
    if (entry && entry.updated_ms === open.conversation.updated_ms && entry.title === open.conversation.title) return;
    await this.reread(open.conversation.id);
  }

  async search(query: string): Promise<void> {
    this.query = query;
    this.searches += 1;
    const mine = this.searches;
    if (query.trim() === "") {
      this.results = null;
      return;
    }
    try {
      const found = await this.backend.conversations(query);
      if (mine === this.searches) this.results = found;
    } catch (e) {
      if (mine === this.searches) this.report(asFailure(e));
    }
  }

  // ---- opening ----

  private draftKey(): string {
    return this.openId === null ? NEW : String(this.openId);
  }

  private switchTo(id: number | null): void {
    if (id === this.openId) return;
    this.keepDraft();
    this.openId = id;
    this.draft = this.drafts.get(this.draftKey()) ?? "";
    this.trouble = null;
    this.picked = null;
  }

  startNew(): void {
    this.switchTo(null);
    this.stored = null;
    this.goal = null;
    this.save();
  }

  /** Opens a conversation, at a message where one is given, else where it was left. */
  async open(id: number, message: number | null = null): Promise<void> {
    this.switchTo(id);
    this.goal = message === null ? (this.places.get(id) ?? null) : { message, offset: 80, found: true };
    await this.reread(id);
    this.save();
  }

  private async reread(id: number): Promise<void> {
    try {
      const thread = await this.backend.conversation(id);
      this.keep(thread);
      if (thread.running && !this.lives.has(id)) void this.follow(thread);
    } catch (e) {
      if (this.openId !== id) return;
      const failure = asFailure(e);
      if (failure.code === "not_found") this.startNew();
      this.report(failure, null, failure.code === "not_found" ? null : () => void this.open(id));
    }
  }

  private keep(thread: Thread): void {
    if (thread.conversation.id === this.openId) this.stored = thread;
  }

  // ---- asking ----

  /** Asks what is typed. The text comes back when it cannot be sent. */
  async send(): Promise<void> {
    const text = this.draft.trim();
    if (text === "" || this.busy) return;
    const key = this.draftKey();
    const typed = this.draft;
    this.draft = "";
    if (await this.ask({ type: "new", text })) {
      this.drafts.delete(key);
      this.save();
      return;
    }
    if (this.draftKey() === key) this.draft = this.draft === "" ? typed : `${typed}\n${this.draft}`;
    else this.drafts.set(key, typed);
    this.save();
  }

  retry(message: number): void {
    void this.ask({ type: "retry", message });
  }

  edit(message: number, text: string): Promise<boolean> {
    return this.ask({ type: "edit", message, text });
  }

  private async ask(ask: Ask): Promise<boolean> {
    const { model, openId: conversation } = this;
    if (model === null || this.busy) return false;
    this.sending = true;
    this.trouble = null;
    if (ask.type === "new") this.pending = { conversation, text: ask.text };
    try {
      const thread = await this.backend.chat({ conversation, model, ask });
      this.session.say(strings.say.answering);
      if (this.openId === conversation) {
        this.openId = thread.conversation.id;
        this.stored = thread;
      }
      if (thread.running) void this.follow(thread);
      this.soonRefresh();
      return true;
    } catch (e) {
      const failure = asFailure(e);
      if (this.openId === conversation) this.report(failure);
      return false;
    } finally {
      this.sending = false;
      this.pending = null;
    }
  }

  private async follow(thread: Thread): Promise<void> {
    const { id } = thread.conversation;
    const answer = thread.messages.at(-1);
    if (!answer) return;
    const say = (text: string) => {
      if (this.openId === id) this.session.say(text);
    };
    const live = new Live(answer.id, this.session.nameOf(answer.answer?.model ?? ""), answer.content, say);
    this.lives.set(id, live);
    let broken: Failure | null = null;
    try {
      await this.backend.follow(id, (events) => {
        live.take(events);
      });
    } catch (e) {
      broken = asFailure(e);
    }
    live.end();
    const fresh = await this.backend.conversation(id).catch((e: unknown) => {
      broken ??= asFailure(e);
      return null;
    });
    if (this.lives.get(id) === live) this.lives.delete(id);
    if (fresh) this.keep(fresh);
    if (broken && broken.code !== "not_found" && this.openId === id) this.report(broken);
    say(outcome(fresh, live));
    this.soonRefresh();
  }

  async stop(): Promise<void> {
    const { live, openId } = this;
    if (!live || openId === null || live.stopping) return;
    live.stopping = true;
    try {
      await this.backend.stop(openId);
    } catch (e) {
      live.stopping = false;
      this.report(asFailure(e));
    }
  }

  async selectVersion(message: number): Promise<void> {
    const id = this.openId;
    if (id === null || this.busy) return;
    try {
      this.keep(await this.backend.selectVersion(id, message));
    } catch (e) {
      this.report(asFailure(e));
    }
  }

  // ---- models ----

  /** Chooses a model for this and for new conversations, and begins to load it. */
  async pick(name: string): Promise<void> {
    this.picked = name;
    this.trouble = null;
    this.session.change({ model: name }).catch((e: unknown) => {
      this.report(asFailure(e));
    });
    const failure = await this.load(name);
    if (failure && this.picked === name) this.report(failure, strings.load.failed(this.session.nameOf(name)), () => void this.pick(name));
  }

  /** Brings a model into memory. Resolves to why it is not there; to `null` also where the user stopped it. */
  async load(name: string): Promise<Failure | null> {
    if (this.session.activity.model === name) return null;
    this.loading = { model: name, stage: "inspect", done: 0, total: 0 };
    const called = this.session.nameOf(name);
    this.session.say(strings.load.announce(called));
    try {
      await this.backend.load(name, (events) => {
        for (const event of events) {
          if (event.type === "loading" && this.loading?.model === name) this.loading = { model: name, ...event };
        }
      });
      this.session.say(strings.load.done(called));
      return null;
    } catch (e) {
      const failure = asFailure(e);
      if (failure.code !== "cancelled") return failure;
      this.session.say(strings.load.stopped(called));
      return null;
    } finally {
      if (this.loading.model === name) this.loading = null;
    }
  }

  stopLoad(): void {
    this.backend.stopLoad().catch((e: unknown) => {
      this.report(asFailure(e));
    });
  }

  // ---- the list ----

  async rename(id: number, title: string): Promise<void> {
    const set = (name: string) => {
      const change = (e: ConversationEntry) => (e.id === id ? { ...e, title: name } : e);
      this.list = this.list.map(change);
      this.results = this.results?.map(change) ?? null;
      if (this.stored?.conversation.id === id) this.stored = { ...this.stored, conversation: change(this.stored.conversation) };
    };
    const before = this.list.find((e) => e.id === id)?.title ?? "";
    set(title);
    try {
      await this.backend.rename(id, title);
    } catch (e) {
      set(before);
      this.report(asFailure(e));
    }
  }

  async delete(entry: ConversationEntry): Promise<boolean> {
    try {
      await this.backend.delete(entry.id);
    } catch (e) {
      this.report(asFailure(e));
      return false;
    }
    const wasOpen = this.openId === entry.id;
    this.list = this.list.filter((e) => e.id !== entry.id);
    this.results = this.results?.filter((e) => e.id !== entry.id) ?? null;
    if (wasOpen) this.startNew();
    this.deleted = { id: entry.id, title: entry.title, wasOpen };
    this.session.say(strings.say.deleted(entry.title));
    return true;
  }

  async undoDelete(): Promise<void> {
    const { deleted } = this;
    if (!deleted) return;
    this.deleted = null;
    try {
      await this.backend.restore(deleted.id);
      this.session.say(strings.say.restored);
      await this.refresh();
      if (deleted.wasOpen) await this.open(deleted.id);
    } catch (e) {
      this.report(asFailure(e));
    }
  }

  report(failure: Failure, title: string | null = null, retry: (() => void) | null = null): void {
    this.trouble = { failure, title, retry };
    this.session.say(strings.say.failed(title ?? strings.errorHelp(failure.code).title));
  }

  // ---- what is kept for the next window ----

  private keepDraft(): void {
    if (this.draft === "") this.drafts.delete(this.draftKey());
    else this.drafts.set(this.draftKey(), this.draft);
  }

  typed(): void {
    this.save();
  }

  place(place: Place | null): void {
    if (this.openId === null) return;
    if (place) this.places.set(this.openId, place);
    else this.places.delete(this.openId);
    this.save();
  }

  showPage(page: string): void {
    this.page = page;
    this.save();
  }

  save(): void {
    clearTimeout(this.saver);
    this.saver = setTimeout(() => {
      this.saveNow();
    }, SAVE_AFTER_MS);
  }

  saveNow(): void {
    clearTimeout(this.saver);
    this.keepDraft();
    const kept: Kept = {
      open: this.openId,
      drafts: Object.fromEntries(this.drafts),
      side: this.sideOpen,
      page: this.page,
      place: this.openId === null ? null : (this.places.get(this.openId) ?? null),
    };
    // Lost only when the window goes this very moment.
    this.backend.setPageState(writeKept(kept)).catch(() => undefined);
  }
}

function outcome(thread: Thread | null, live: Live): string {
  const answer = thread?.messages.find((m) => m.id === live.message)?.answer;
  if (answer?.state === "complete") return strings.say.done;
  if (answer?.state === "stopped") return strings.say.stopped;
  const error = answer?.error ?? live.failed;
  return error ? strings.say.failed(strings.errorHelp(error.code).title) : "";
}
