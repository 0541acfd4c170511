import { start } from "../src/start";
import { Stub } from "./backend";

declare global {
  interface Window {
    stub: Stub;
    hacked?: number;
  }
}

window.stub = new Stub(new URLSearchParams(location.search));
start(window.stub);
