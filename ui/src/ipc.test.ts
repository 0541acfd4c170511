// @vitest-environment jsdom
import { clearMocks, mockIPC } from "@tauri-apps/api/mocks";
import { afterEach, expect, it } from "vitest";
import { type Backend, shell } from "./ipc";
import type { Event } from "./gen/api";

interface Call {
  command: string;
  args: Record<string, unknown>;
}

/** Answers every command with `answer` and keeps what was called. */
function record(answer: (call: Call) => unknown): Call[] {
  const calls: Call[] = [];
  mockIPC((command, args) => {
    const call = { command, args: { ...(args as Record<string, unknown>) } };
    calls.push(call);
    return answer(call);
  });
  return calls;
}

afterEach(() => {
  clearMocks();
});

it("every method calls its command with the arguments that the shell declares", async () => {
  const turn = { conversation: null, model: "m", ask: { type: "new", text: "t" } } as const;
  const on = () => undefined;
  const expected: [(b: Backend) => Promise<unknown>, string, Record<string, unknown>][] = [
    [(b) => b.info(), "app_info", {}],
    [(b) => b.activity(), "activity_get", {}],
    [(b) => b.models(), "models_list", {}],
    [(b) => b.load("m", on), "model_load", { model: "m" }],
    [(b) => b.stopLoad(), "model_load_stop", {}],
    [(b) => b.unload(), "model_unload", {}],
    [(b) => b.verify("m", on), "model_verify", { model: "m" }],
    [(b) => b.stopVerify(), "model_verify_stop", {}],
    [(b) => b.removeModel("m"), "model_remove", { model: "m" }],
    [(b) => b.catalogue(), "catalogue_list", {}],
    [(b) => b.searchHub("w"), "hub_search", { words: "w" }],
    [(b) => b.plan("o/n"), "pull_plan", { model: "o/n" }],
    [(b) => b.pull("o/n", true), "pull_start", { model: "o/n", options: { anyway: true } }],
    [(b) => b.pulls(), "pulls_list", {}],
    [(b) => b.pausePull("o/n"), "pull_pause", { model: "o/n" }],
    [(b) => b.cancelPull("o/n"), "pull_cancel", { model: "o/n" }],
    [(b) => b.token(), "token_get", {}],
    [(b) => b.setToken("t"), "token_set", { token: "t" }],
    [(b) => b.setToken(null), "token_set", { token: null }],
    [(b) => b.conversations(), "conversations_list", { search: null }],
    [(b) => b.conversations("x"), "conversations_list", { search: "x" }],
    [(b) => b.conversation(1), "conversation_get", { id: 1 }],
    [(b) => b.rename(1, "t"), "conversation_rename", { id: 1, title: "t" }],
    [(b) => b.delete(1), "conversation_delete", { id: 1 }],
    [(b) => b.restore(1), "conversation_restore", { id: 1 }],
    [(b) => b.selectVersion(1, 2), "conversation_select", { conversation: 1, message: 2 }],
    [(b) => b.chat(turn), "chat_send", { turn }],
    [(b) => b.follow(1, on), "chat_follow", { conversation: 1 }],
    [(b) => b.stop(1), "chat_stop", { conversation: 1 }],
    [(b) => b.settings(), "settings_get", {}],
    [(b) => b.setSettings({ theme: "dark" }), "settings_set", { patch: { theme: "dark" } }],
    [(b) => b.endpoint(), "endpoint_get", {}],
    [(b) => b.setEndpoint(true), "endpoint_set", { on: true, port: null }],
    [(b) => b.setEndpoint(false, 9000), "endpoint_set", { on: false, port: 9000 }],
    [(b) => b.openLink("https://x"), "link_open", { url: "https://x" }],
    [(b) => b.pageState(), "page_state_get", {}],
    [(b) => b.setPageState("s"), "page_state_set", { state: "s" }],
  ];
  const calls = record(() => null);
  for (const [call, command, args] of expected) {
    await call(shell);
    const { onEvents, ...rest } = calls.at(-1)?.args ?? {};
    expect([calls.at(-1)?.command, rest]).toEqual([command, args]);
    expect(onEvents !== undefined).toBe(["model_load", "model_verify", "chat_follow"].includes(command));
  }
  const methods = Object.keys(shell).filter((name) => name !== "on");
  expect(new Set(expected.map(([call]) => /b\.(\w+)/.exec(call.toString())?.[1]))).toEqual(new Set(methods));
});

it("events come in order through the channel", async () => {
  const internals = () => (window as unknown as { __TAURI_INTERNALS__: { runCallback(id: number, data: unknown): void } }).__TAURI_INTERNALS__;
  record(({ args }) => {
    const { id } = args.onEvents as { id: number };
    const text = (delta: string): Event[] => [{ type: "text", delta }];
    internals().runCallback(id, { index: 1, message: text("b") });
    internals().runCallback(id, { index: 0, message: text("a") });
    return true;
  });
  const got: Event[] = [];
  expect(await shell.follow(1, (events) => got.push(...events))).toBe(true);
  expect(got).toEqual([{ type: "text", delta: "a" }, { type: "text", delta: "b" }]);
});

it.each([
  [{ code: "store", message: "m" }, { code: "store", message: "m" }],
  ["command x not allowed", { code: "internal", message: "command x not allowed" }],
  [new Error("e"), { code: "internal", message: "e" }],
])("a rejection %j is a failure", async (thrown, failure) => {
  record(() => {
    throw thrown as Error;
  });
  await expect(shell.models()).rejects.toEqual(failure);
});
