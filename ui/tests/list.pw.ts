import { answers, ask, axe, composer, done, entry, expect, open, questions, test } from "./support";

const search = "searchbox";

test("conversations are found by their text, and opened where it stands", async ({ page }) => {
  await open(page, "thread=600");
  await page.keyboard.press("Control+f");
  await expect(page.getByRole(search)).toBeFocused();
  await page.keyboard.type("number 350?");
  const found = page.getByRole("navigation").getByRole("list").getByRole("button", { name: /A long conversation/ }).first();
  await expect(found.locator("mark")).toHaveText("number 350?");
  await expect(page.getByTestId("said")).toContainText("1 conversation found");
  await found.click();
  const hit = questions(page).filter({ hasText: "what about number 350?" });
  await expect(hit).toBeInViewport();
  await page.getByRole(search).fill("nobody said this");
  await expect(page.getByText("No conversation has this text.")).toBeVisible();
  await page.getByRole(search).press("Escape");
  await expect(entry(page, "Letter to the landlord")).toBeVisible();
});

test("the newest search wins, however late the older one answers", async ({ page }) => {
  await open(page);
  await page.evaluate(() => {
    const real = window.stub.conversations.bind(window.stub);
    window.stub.conversations = async (text) => {
      if (text === "rust") await new Promise((ok) => setTimeout(ok, 600));
      return real(text);
    };
  });
  await page.getByRole(search).fill("rust");
  await page.waitForTimeout(200);
  await page.getByRole(search).fill("landlord");
  await expect(page.getByRole("navigation").getByRole("listitem")).toHaveCount(1);
  await page.waitForTimeout(700);
  await expect(page.getByRole("navigation").getByRole("listitem")).toContainText("landlord");
});

test("a conversation is renamed in place", async ({ page }) => {
  await open(page);
  await entry(page, "Letter to the landlord").focus();
  await page.keyboard.press("F2");
  const field = page.getByRole("textbox", { name: "Title" });
  await expect(field).toBeFocused();
  await field.fill("The broken heating");
  await page.keyboard.press("Enter");
  await expect(entry(page, "The broken heating")).toBeFocused();
  await page.keyboard.press("F2");
  await page.keyboard.type("not this");
  await page.keyboard.press("Escape");
  await expect(entry(page, "The broken heating")).toBeFocused();
  await page.evaluate(() => (window.stub.failures.rename = { code: "store", message: "x" }));
  await page.getByRole("button", { name: "Rename “The broken heating”" }).click();
  await page.keyboard.type("lost");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main").getByText("Conversations cannot be read or saved")).toBeVisible();
  await expect(entry(page, "The broken heating")).toBeVisible();
});

test("a deleted conversation comes back, by keyboard, and the offer stays ten seconds", async ({ page }) => {
  await page.clock.install();
  await open(page);
  await entry(page, "Newton’s method").click();
  await expect(answers(page)).toContainText("To find a root");
  await entry(page, "Newton’s method").focus();
  await page.keyboard.press("Delete");
  await expect(entry(page, "Newton’s method")).toHaveCount(0);
  const undo = page.getByRole("button", { name: "Undo" });
  await expect(undo).toBeFocused();
  await expect(page.getByTestId("said")).toContainText("“Newton’s method” was deleted.");
  expect(await axe(page)).toEqual([]);
  await page.keyboard.press("Enter");
  await expect(entry(page, "Newton’s method")).toBeVisible();
  await expect(answers(page)).toContainText("To find a root");

  await entry(page, "Letter to the landlord").focus();
  await page.keyboard.press("Delete");
  await expect(undo).toBeFocused();
  await page.clock.runFor(30_000);
  await expect(undo).toBeVisible();
  await composer(page).focus();
  await page.clock.runFor(5_000);
  await expect(undo).toHaveCount(0);

  // With the focus elsewhere it stays ten seconds all the same.
  await entry(page, "Explain ownership in Rust").focus();
  await page.keyboard.press("Delete");
  await composer(page).focus();
  await page.clock.runFor(10_500);
  await expect(undo).toBeVisible();
  await page.clock.runFor(6_000);
  await expect(undo).toHaveCount(0);
});

test("a change by another process shows", async ({ page }) => {
  await open(page);
  await entry(page, "Letter to the landlord").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Letter to the landlord");
  await page.evaluate(async () => {
    const [found] = await window.stub.conversations("Letter to the landlord");
    await window.stub.rename(found?.id ?? 0, "Renamed elsewhere");
  });
  await expect(entry(page, "Renamed elsewhere")).toBeVisible();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Renamed elsewhere");
});

test("a whole chat by keyboard alone", async ({ page }) => {
  await open(page);
  await expect(composer(page)).toBeFocused();
  await page.keyboard.type("What is the capital of France?");
  await page.keyboard.press("Enter");
  await done(page);
  await expect(answers(page)).toContainText("Paris");
  await expect(composer(page)).toBeFocused();
  // Back through the answer's tools to the question's.
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? "");
  const back = async (to: string) => {
    for (let n = 0; n < 12 && (await focused()) !== to; n++) await page.keyboard.press("Shift+Tab");
    expect(await focused()).toBe(to);
  };
  await back("Retry");
  await back("Edit the question");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("Show me code");
  await page.keyboard.press("Enter");
  await done(page);
  await expect(answers(page)).toContainText("Here it is");
  await back("Copy the answer");
  await back("Next version");
  await back("Model: Demo: offline, very small");
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Model: Qwen3-8B-4bit" })).toBeVisible();
  await expect(composer(page)).toBeFocused();
  // Search, arrow, open.
  await page.keyboard.press("Control+k");
  await page.keyboard.type("landlord");
  await expect(page.getByRole("navigation").getByRole("listitem")).toHaveCount(1);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Letter to the landlord");
  await expect(composer(page)).toBeFocused();
  await page.keyboard.press("Control+n");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("New conversation");
  await page.keyboard.press("Control+,");
  await expect(page.getByRole("heading", { name: "Settings" })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(composer(page)).toBeFocused();
});

test("a narrow window has the list as a drawer", async ({ page }) => {
  await page.setViewportSize({ width: 480, height: 600 });
  await open(page);
  await expect(page.getByRole("navigation")).toHaveCount(0);
  await page.getByRole("button", { name: "Show conversations" }).click();
  await expect(page.getByRole("button", { name: "Hide conversations" })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("navigation")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Show conversations" })).toBeFocused();
  await page.keyboard.press("Enter");
  await entry(page, "Newton’s method").click();
  await expect(page.getByRole("navigation")).toHaveCount(0);
  await expect(answers(page)).toContainText("To find a root");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(wide).toBeLessThanOrEqual(480);
  await ask(page, "hello");
  await done(page);
});

test("hiding and showing the list keeps the focus", async ({ page }) => {
  await open(page);
  await page.getByRole("button", { name: "Hide conversations" }).click();
  await expect(page.getByRole("button", { name: "Show conversations" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Hide conversations" })).toBeFocused();
});

test("looking again for models puts the focus into the message field", async ({ page }) => {
  await open(page, "models=none&fresh");
  const again = page.getByRole("button", { name: "Look again" });
  await again.click();
  await expect(again).toBeFocused();
  await page.evaluate(() => { window.stub.installAll(); });
  await page.keyboard.press("Enter");
  await expect(composer(page)).toBeFocused();
});

test("the web view's menu comes only for text", async ({ page }) => {
  await open(page);
  await entry(page, "Newton’s method").click();
  await answers(page).first().waitFor();
  await page.evaluate(() => {
    addEventListener("contextmenu", (event) => { document.body.dataset.menu = event.defaultPrevented ? "none" : "shown"; });
  });
  const menu = () => page.evaluate(() => document.body.dataset.menu);
  const text = answers(page).first().locator("p").first();
  await text.click({ button: "right", position: { x: 200, y: 4 }, modifiers: [] });
  // Some systems select the word under the pointer, and then it can be copied.
  const chosen = await page.evaluate(() => getSelection()?.isCollapsed === false);
  expect(await menu()).toBe(chosen ? "shown" : "none");
  await page.getByRole("heading", { level: 1 }).click({ button: "right" });
  expect(await menu()).toBe(chosen ? "shown" : "none");
  await composer(page).click({ button: "right" });
  expect(await menu()).toBe("shown");
  await text.selectText();
  await text.click({ button: "right" });
  expect(await menu()).toBe("shown");
});
