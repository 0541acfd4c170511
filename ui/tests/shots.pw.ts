import { test, type Page } from "@playwright/test";

/** Pictures for people to look at: `SHOTS=folder npx playwright test shots`. */
const folder = process.env.SHOTS;
test.skip(folder === undefined, "only with SHOTS=folder");

const composer = (page: Page) => page.getByRole("textbox", { name: "Message" });

async function ask(page: Page, text: string) {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

for (const theme of ["light", "dark"] as const) {
  test(`pictures, ${theme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme: theme });
    const shot = (name: string) => page.screenshot({ path: `${folder ?? ""}/${theme}-${name}.png` });
    const open = async (query = "") => {
      await page.goto(`/dev.html?platform=macos&fresh&${query}`);
      await composer(page).waitFor();
    };
    await open();
    await shot("new");
    await page.getByRole("button", { name: "Newton’s method", exact: true }).click();
    await page.locator("math").first().waitFor();
    await page.locator(".hljs-keyword").first().waitFor();
    await page.waitForTimeout(300);
    await shot("answer-end");
    await page.locator("section.scroller").evaluate((node) => (node.scrollTop = 0));
    await page.waitForTimeout(400);
    await shot("answer");
    await page.getByRole("link", { name: "the article" }).click();
    await page.waitForTimeout(200);
    await shot("link");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: /^Model:/ }).click();
    await page.waitForTimeout(200);
    await shot("models");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Answers that ended early", exact: true }).click();
    await page.waitForTimeout(300);
    await shot("states");
    await page.getByRole("searchbox").fill("square");
    await page.locator("mark").first().waitFor();
    await shot("search");
    await page.getByRole("searchbox").fill("");
    await page.getByRole("button", { name: "Letter to the landlord", exact: true }).focus();
    await page.keyboard.press("Delete");
    await page.waitForTimeout(200);
    await shot("undo");
    await page.evaluate(() => { window.stub.failures.chat = { code: "claim_held", message: "another rMLX (process 4711) holds the GPU on this machine\nhint: quit it, or ask it through its endpoint" }; });
    await ask(page, "What is the capital of France?");
    await page.locator(".trouble").last().waitFor();
    await shot("error");
    await open("load=9000");
    await ask(page, "What is the capital of France?");
    await page.locator("progress").waitFor();
    await page.waitForTimeout(4000);
    await shot("loading");
    await open("prefill=9000&load=10");
    await ask(page, "Explain Newton to me, please.");
    await page.getByText("Reading the prompt").waitFor();
    await page.waitForTimeout(3000);
    await shot("prefill");
    await open("speed=60&load=10&prefill=10");
    await ask(page, "newton");
    await page.waitForTimeout(2200);
    await shot("streaming");
    await open("models=none");
    await shot("no-models");
    await open("thread=400");
    await page.getByRole("button", { name: "A long conversation", exact: true }).click();
    await page.waitForTimeout(300);
    await page.mouse.move(600, 300);
    await page.mouse.wheel(0, -900);
    await page.waitForTimeout(400);
    await page.locator('li[data-role="user"]').nth(-9).hover();
    await page.waitForTimeout(250);
    await shot("long");
    await page.getByRole("button", { name: "Edit the question" }).first().click();
    await page.waitForTimeout(200);
    await shot("edit");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("heading", { name: "Settings" }).waitFor();
    await page.waitForTimeout(200);
    await shot("settings");
    await page.evaluate(() => { window.stub.takenPort = 8080; });
    await page.getByRole("switch").click();
    await page.locator(".trouble").last().waitFor();
    await page.getByRole("switch").scrollIntoViewIfNeeded();
    await page.waitForTimeout(200);
    await shot("settings-port");
    await page.setViewportSize({ width: 480, height: 640 });
    await open();
    await shot("narrow-new");
    await page.getByRole("button", { name: "Show conversations" }).click();
    await page.waitForTimeout(300);
    await shot("narrow-side");
    await page.getByRole("button", { name: "Newton’s method", exact: true }).click();
    await page.locator("math").first().waitFor();
    await page.waitForTimeout(300);
    await shot("narrow-answer");
  });
}
