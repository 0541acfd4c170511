import { mount } from "svelte";
import App from "./App.svelte";
import type { Backend } from "./ipc";
import { keepInside } from "./shared/inside";

export function start(backend: Backend): void {
  const target = document.getElementById("app");
  if (!target) throw new Error("no #app in the page");
  keepInside(document);
  target.replaceChildren();
  mount(App, { target, props: { backend } });
}
