import { answers, ask, composer, done, entry, expect, open, questions, test, thread } from "./support";

test("a question is asked and its answer streams", async ({ page }) => {
  await open(page, "speed=60");
  await ask(page, "Tell me about Newton");
  await expect(questions(page)).toHaveText(/Tell me about Newton/);
  await expect(composer(page)).toHaveValue("");
  await expect(composer(page)).toBeFocused();
  await expect(page.getByRole("button", { name: "Stop" })).toBeVisible();
  await expect(answers(page).getByText("To find a root")).toBeVisible();
  await expect(answers(page).locator("blockquote")).toHaveCount(0);
  // A finished block stays the very same element while the rest comes.
  const first = await answers(page).locator("h3").elementHandle();
  await done(page);
  await expect(answers(page).locator("blockquote")).toHaveText("Errors shrink by their square.");
  expect(await first?.evaluate((node) => node.isConnected)).toBe(true);
  await expect(answers(page).locator("pre .hljs-keyword").first()).toHaveText("fn");
  await expect(answers(page).locator("math").first()).toBeVisible();
  await expect(answers(page).getByText("A coffee is $5 and a cake is $6")).toBeVisible();
  await expect(answers(page).getByText("60 tokens/s")).toBeVisible();
  await expect(entry(page, "Tell me about Newton")).toHaveAttribute("aria-current", "true");
});

test("loading and reading the prompt are shown with their figures", async ({ page }) => {
  await open(page, "load=5000&prefill=4000");
  await ask(page, "What is the capital of France?");
  await expect(page.getByText("Reading files")).toBeVisible();
  await expect(page.getByText(/Loading weights: \d+ MB of 270 MB/)).toBeVisible();
  const bar = page.getByRole("progressbar", { name: "Progress of loading" });
  await expect.poll(() => bar.evaluate((node: HTMLProgressElement) => node.value)).toBeGreaterThan(0.3);
  await expect(page.getByText("Warming up")).toBeVisible();
  await expect(page.getByText(/Reading the prompt: [\d,]+ of 2,048 tokens/)).toBeVisible();
  await done(page);
  await expect(answers(page)).toContainText("Paris is the capital");
});

test("a slow load is stopped", async ({ page }) => {
  await open(page, "load=8000");
  await ask(page, "hello");
  await expect(page.getByText("Reading files")).toBeVisible();
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByText("You stopped this answer.")).toBeVisible({ timeout: 20_000 });
});

test("an answer is stopped by the button and by Escape, and made anew", async ({ page }) => {
  await open(page, "speed=40");
  await ask(page, "a long one, please");
  await expect(answers(page)).toContainText("Paragraph 1");
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByText("You stopped this answer.")).toBeVisible();
  await page.getByRole("button", { name: "Retry" }).click();
  await expect(composer(page)).toBeFocused();
  await expect(answers(page)).toContainText("Paragraph 1");
  await composer(page).press("Escape");
  await expect(page.getByText("You stopped this answer.")).toBeVisible();
  await expect(page.getByText("2 of 2")).toBeVisible();
  await page.getByRole("button", { name: "Previous version" }).click();
  await expect(page.getByText("1 of 2")).toBeVisible();
  await expect(page.getByRole("button", { name: "Previous version" })).toBeFocused();
});

test("an edited question is a version; the old one stays", async ({ page }) => {
  await open(page);
  await ask(page, "What is the capital of France?");
  await done(page);
  await ask(page, "And then?");
  await done(page);
  await questions(page).first().hover();
  await page.getByRole("button", { name: "Edit the question" }).first().click();
  await page.getByRole("textbox", { name: "Changed question" }).fill("Show me code");
  await page.keyboard.press("Enter");
  await expect(questions(page)).toHaveCount(1);
  await done(page);
  await expect(answers(page)).toContainText("Here it is");
  await expect(page.getByText("2 of 2")).toBeVisible();
  await page.getByRole("button", { name: "Previous version" }).click();
  await expect(questions(page)).toHaveCount(2);
  await expect(answers(page).first()).toContainText("Paris");
  await page.getByRole("button", { name: "Next version" }).click();
  await expect(answers(page)).toContainText("Here it is");
});

test("Enter sends, Shift and Enter breaks the line", async ({ page }) => {
  await open(page);
  await composer(page).pressSequentially("one");
  await composer(page).press("Shift+Enter");
  await composer(page).pressSequentially("two");
  await expect(composer(page)).toHaveValue("one\ntwo");
  await composer(page).press("Enter");
  await expect(questions(page)).toHaveText(/one\s*two/);
  await done(page);
  await composer(page).press("Enter");
  await composer(page).fill("   ");
  await composer(page).press("Enter");
  await expect(questions(page)).toHaveCount(1);
});

test("Enter while an input method composes does not send", async ({ page }) => {
  await open(page);
  await composer(page).focus();
  const browser = await page.context().newCDPSession(page);
  await browser.send("Input.imeSetComposition", { text: "にほん", selectionStart: 3, selectionEnd: 3 });
  await page.keyboard.press("Enter");
  await browser.send("Input.insertText", { text: "日本" });
  await expect(composer(page)).toHaveValue("日本");
  // As WebKit has it: the composition is over before the key event of the same press, which says nothing of it.
  await composer(page).evaluate((field) => {
    field.dispatchEvent(new CompositionEvent("compositionstart", { bubbles: true }));
    field.dispatchEvent(new CompositionEvent("compositionend", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 13, bubbles: true, cancelable: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true }));
  });
  await page.waitForTimeout(120);
  expect(await page.evaluate(() => window.stub.calls.includes("chat"))).toBe(false);
  await expect(composer(page)).toHaveValue("日本");
  await composer(page).press("Enter");
  await expect(questions(page)).toHaveText(/日本/);
});

test("the text comes back when it cannot be sent", async ({ page }) => {
  await open(page);
  await page.evaluate(() => (window.stub.failures.chat = { code: "store", message: "/home/me/rmlx.db: disk is full" }));
  await ask(page, "precious words");
  await expect(page.getByRole("main").getByText("Conversations cannot be read or saved")).toBeVisible();
  await expect(page.getByText("Check that the disk is not full")).toBeVisible();
  await expect(page.getByText("/home/me/rmlx.db: disk is full")).toBeVisible();
  await expect(composer(page)).toHaveValue("precious words");
  await expect(questions(page)).toHaveCount(0);
  await page.evaluate(() => delete window.stub.failures.chat);
  await composer(page).press("Enter");
  await expect(questions(page)).toHaveText(/precious words/);
  await expect(page.getByRole("main").getByText("Conversations cannot be read or saved")).toHaveCount(0);
});

for (const [code, title] of [
  ["model_not_found", "This model is not on this machine"],
  ["context_length_exceeded", "The conversation is too long for this model"],
  ["claim_held", "Another rMLX is using the GPU"],
  ["unsupported_model", "This version of rMLX cannot run this model"],
  ["bad_weights", "The model’s weights do not fit together"],
  ["something_new", "Something went wrong"],
] as const) {
  test(`an answer that fails with ${code} says what to do`, async ({ page }) => {
    await open(page);
    await page.evaluate((c) => (window.stub.failAnswer = { after: 20, error: { code: c, message: "the very reason" } }), code);
    await ask(page, "What is the capital of France?");
    const trouble = answers(page).locator(".trouble");
    await expect(trouble).toContainText(title);
    await expect(trouble).toContainText("the very reason");
    await expect(answers(page)).toContainText("Paris is");
    await page.evaluate(() => (window.stub.failAnswer = null));
    await trouble.getByRole("button", { name: "Retry" }).click();
    await done(page);
    await expect(answers(page)).toContainText("two million people");
  });
}

test("an engine that cannot be reached is told, and asked again", async ({ page }) => {
  await page.addInitScript(() => {
    Object.defineProperty(window, "stub", {
      configurable: true,
      set(stub) {
        stub.failures.settings = { code: "internal", message: "no answer" };
        Object.defineProperty(window, "stub", { value: stub });
      },
    });
  });
  await page.goto("/dev.html");
  await expect(page.getByRole("main").getByText("A fault in rMLX")).toBeVisible();
  await page.evaluate(() => delete window.stub.failures.settings);
  await page.getByRole("button", { name: "Retry" }).click();
  await expect(composer(page)).toBeVisible();
});

test("scrolling up while an answer streams stays put; the button goes back", async ({ page }) => {
  await open(page, "speed=150");
  await ask(page, "a long one");
  await expect(answers(page)).toContainText("Paragraph 12");
  const scroller = thread(page);
  const bottom = () => scroller.evaluate((n) => n.scrollHeight - n.clientHeight - n.scrollTop);
  await expect.poll(bottom).toBeLessThan(3);
  await scroller.hover();
  await page.mouse.wheel(0, -30);
  await expect(page.getByRole("button", { name: "To the newest message" })).toBeVisible();
  await page.mouse.wheel(0, -200);
  await page.waitForTimeout(100);
  const top = await scroller.evaluate((n) => n.scrollTop);
  await expect(answers(page)).toContainText("Paragraph 24");
  expect(await scroller.evaluate((n) => n.scrollTop)).toBe(top);
  await page.getByRole("button", { name: "To the newest message; there is more" }).click();
  await expect(composer(page)).toBeFocused();
  await expect.poll(bottom).toBeLessThan(3);
  await expect(answers(page)).toContainText("Paragraph 40");
  await expect.poll(bottom).toBeLessThan(3);
  await done(page);
});

test("what is typed, what is open and where it was survive a new window", async ({ page }) => {
  await open(page, "thread=200");
  await composer(page).fill("for a new one");
  await entry(page, "A long conversation").click();
  await expect(composer(page)).toHaveValue("");
  await composer(page).fill("not sent yet");
  await thread(page).hover();
  await page.mouse.wheel(0, -1500);
  await page.waitForTimeout(600);
  const seen = () =>
    page.evaluate(() => {
      const items = [...document.querySelectorAll<HTMLElement>("[data-message]")];
      const first = items.find((n) => n.getBoundingClientRect().bottom > 49);
      return [first?.dataset.message, Math.round(first?.getBoundingClientRect().top ?? 0)];
    });
  const before = await seen();
  await page.reload();
  await composer(page).waitFor();
  await expect(composer(page)).toHaveValue("not sent yet");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("A long conversation");
  await expect.poll(seen).toEqual(before);
  await page.keyboard.press("Control+n");
  await expect(composer(page)).toHaveValue("for a new one");
});

test("an answer goes on while another conversation is open, and after a new window", async ({ page }) => {
  await open(page, "speed=80");
  await ask(page, "a long one");
  await expect(answers(page)).toContainText("Paragraph 1");
  await entry(page, "Letter to the landlord").click();
  await expect(answers(page)).toContainText("scripted");
  await expect(page.getByRole("img", { name: "Answering" })).toBeVisible();
  await ask(page, "What is the capital of France?");
  await done(page);
  await entry(page, "a long one").click();
  await expect(answers(page)).toContainText("Paragraph 9");
  await expect(page.getByRole("button", { name: "Stop" })).toBeVisible();
});

test("no model: the page says what to do", async ({ page }) => {
  await open(page, "models=none");
  await expect(page.getByText("rmlx import")).toBeVisible();
  await ask(page, "hello");
  await expect(composer(page)).toHaveValue("hello");
});

test("a load that was asked for in the picker is stopped", async ({ page }) => {
  await open(page, "load=8000");
  await page.getByRole("button", { name: "Model: Demo: offline, very small" }).click();
  await page.getByRole("menuitemradio", { name: /Qwen3-8B/ }).click();
  const strip = page.getByRole("main").getByText("Loading Qwen3-8B-4bit");
  await expect(strip).toBeVisible();
  await page.getByRole("button", { name: "Stop loading" }).click();
  await expect(strip).toHaveCount(0);
  await expect(page.getByText("could not be loaded")).toHaveCount(0);
  await expect(page.getByTestId("said")).toContainText("Loading Qwen3-8B-4bit was stopped.");
});

test("models are chosen with what is known of them", async ({ page }) => {
  await open(page, "load=800");
  await page.getByRole("button", { name: "Model: Demo: offline, very small" }).click();
  const menu = page.getByRole("menu", { name: "Installed models" });
  await expect(menu.getByRole("menuitemradio", { name: /SmolLM2/ })).toBeFocused();
  await expect(menu.getByText("Base model")).toBeVisible();
  await expect(menu.getByText("no architecture here is called MixtralForCausalLM")).toBeVisible();
  await menu.getByRole("menuitemradio", { name: /Mixtral/ }).click({ force: true });
  await expect(menu).toBeVisible();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main").getByText("Loading Qwen3-8B-4bit")).toBeVisible();
  await expect(page.getByText(/Loading weights: [\d.]+ (MB|GB) of 4.6 GB/)).toBeVisible();
  await expect(page.getByRole("button", { name: "Model: Qwen3-8B-4bit" })).toBeVisible();
  await expect(page.getByRole("main").getByText("Loading Qwen3-8B-4bit")).toHaveCount(0);
  await ask(page, "hi");
  await expect(answers(page)).toContainText("Qwen3-8B-4bit");
});

test("a model that cannot be loaded is told", async ({ page }) => {
  await open(page);
  await page.evaluate(() => (window.stub.failures.load = { code: "bad_weights", message: "the weights do not fit: a.b is missing" }));
  await page.getByRole("button", { name: "Model: Demo: offline, very small" }).click();
  await page.getByRole("menuitemradio", { name: /Qwen3/ }).click();
  await expect(page.getByRole("main").getByText("Qwen3-8B-4bit could not be loaded")).toBeVisible();
  await expect(page.getByText("a.b is missing")).toBeVisible();
});
