import { type Page, expect, test as base } from "@playwright/test";
import { readFileSync } from "node:fs";

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

export const composer = (page: Page) => page.getByRole("textbox", { name: "Message" });
export const thread = (page: Page) => page.getByRole("region", { name: "Conversation" });
export const answers = (page: Page) => page.locator('li[data-role="assistant"]');
export const questions = (page: Page) => page.locator('li[data-role="user"]');
export const entry = (page: Page, title: string) => page.getByRole("navigation").getByRole("button", { name: title, exact: true });

/** Opens the page over the stub; see dev/backend.ts for what the query may say. */
export async function open(page: Page, query = "") {
  await page.goto(`/dev.html?${query}&load=20&prefill=20&speed=400`);
  await composer(page).waitFor();
}

export async function ask(page: Page, text: string) {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

/** The running answer is over. */
export async function done(page: Page) {
  await expect(page.locator("form")).toHaveAttribute("aria-busy", "false", { timeout: 20_000 });
}

/** What is wrong with the page's accessibility, one line a finding. */
export async function axe(page: Page): Promise<string[]> {
  // By the protocol, so that the page's own policy does not refuse the script.
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const { axe: tool } = window as unknown as { axe: { run(on: Document, how: object): Promise<{ violations: Violation[] }> } };
    interface Violation {
      id: string;
      nodes: { target: string[]; failureSummary: string }[];
    }
    const { violations } = await tool.run(document, { runOnly: tags });
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`));
  });
}

/** A test that fails on any error of the page, any refusal by its policy, and any request to another host. */
export const test = base.extend<{ foreign: string[]; calm: undefined; refusals: boolean }>({
  /** The test is about what the policy refuses. */
  refusals: [false, { option: true }],
  foreign: async ({ page }, use) => {
    const foreign: string[] = [];
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.host !== `127.0.0.1:${process.env.RMLX_PAGES_PORT ?? ""}`) foreign.push(request.url());
    });
    await use(foreign);
  },
  calm: [
    async ({ page, foreign, refusals }, use) => {
      const errors: string[] = [];
      page.on("pageerror", (error) => errors.push(error.message));
      page.on("console", (message) => {
        if (message.type() === "error" && !(refusals && message.text().includes("Content Security Policy"))) errors.push(message.text());
      });
      await use(undefined);
      expect(errors).toEqual([]);
      if (!refusals) expect(foreign).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
