/** The pages of the window.  */
import type { Component } from "svelte";
import type { ChatState } from "./pages/chat/state.svelte";
import Chat from "./pages/chat/Chat.svelte";
import type { Session } from "./session.svelte";

export type PageName = "chat" | "models" | "settings";

export interface PageProps {
  session: Session;
  chat: ChatState;
  go: (page: PageName) => void;
}

type Page = Component<PageProps>;

export const pages: Record<PageName, () => Page | Promise<Page>> = {
  chat: () => Chat,
  // Rarely opened, so they come when they are.
  models: async () => (await import("./pages/models/Models.svelte")).default,
  settings: async () => (await import("./pages/settings/Settings.svelte")).default,
};
