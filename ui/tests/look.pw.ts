import { answers, ask, axe, composer, done, entry, expect, open, test } from "./support";

for (const theme of ["light", "dark"] as const) {
  test(`nothing is wrong with its accessibility, ${theme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme: theme });
    const fine = async (what: string) => {
      // Transitions would be measured half-way.
      await page.waitForTimeout(250);
      expect(await axe(page), what).toEqual([]);
    };
    await open(page);
    await fine("new");
    await page.getByRole("button", { name: /^Model:/ }).click();
    await fine("models");
    await page.keyboard.press("Escape");
    await entry(page, "Newton’s method").click();
    await answers(page).locator("math").first().waitFor();
    await answers(page).locator(".hljs-keyword").first().waitFor();
    await fine("an answer");
    await answers(page).getByRole("link").first().click();
    await fine("the link's dialog");
    await page.keyboard.press("Escape");
    await entry(page, "Answers that ended early").click();
    await fine("states");
    await page.getByRole("button", { name: "Edit the question" }).first().focus();
    await page.keyboard.press("Enter");
    await fine("an editor");
    await page.keyboard.press("Escape");
    await page.getByRole("searchbox").fill("square");
    await page.locator("mark").first().waitFor();
    await fine("a search");
    await page.getByRole("searchbox").fill("");
    await entry(page, "Letter to the landlord").focus();
    await page.keyboard.press("F2");
    await fine("renaming");
    await page.keyboard.press("Escape");
    await page.evaluate(() => (window.stub.failures.chat = { code: "claim_held", message: "another rMLX" }));
    await ask(page, "x");
    await page.getByRole("main").getByText("Another rMLX is using the GPU").waitFor();
    await fine("an error");
    await open(page, "load=20000");
    await ask(page, "x");
    await page.getByText("Loading weights").waitFor();
    await fine("loading");
    await open(page, "prefill=20000");
    await ask(page, "x");
    await page.getByText("Reading the prompt").waitFor();
    await fine("reading");
    await open(page, "models=none&fresh");
    await fine("no models");
    await open(page, "shortcut=taken");
    await page.getByRole("button", { name: "Settings" }).click();
    await page.evaluate(() => (window.stub.takenPort = 8080));
    await page.getByRole("switch").click();
    await page.getByRole("main").getByText("could not start").waitFor();
    await fine("settings");
    await page.setViewportSize({ width: 480, height: 640 });
    await open(page, "fresh");
    await page.getByRole("button", { name: "Show conversations" }).click();
    await fine("the drawer");
  });
}

test("nothing moves for who wants no motion", async ({ page }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await open(page, "load=20000");
  await ask(page, "x");
  await page.getByText("Reading files").waitFor();
  const longest = await page.evaluate(() =>
    Math.max(0, ...document.getAnimations().map((a) => Number(a.effect?.getComputedTiming().activeDuration ?? 0))),
  );
  expect(longest).toBeLessThan(2);
});

test("figures: first paint, a long conversation, a key press", async ({ page }) => {
  await page.goto("/dev.html?thread=2000&fresh");
  await composer(page).waitFor();
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN);
  console.log(`first contentful paint: ${paint.toFixed(0)} ms`);
  expect(paint).toBeGreaterThan(0);

  const opened = await page.evaluate(async () => {
    const button = [...document.querySelectorAll<HTMLElement>("nav button")].find((b) => b.textContent.includes("A long conversation"));
    const began = performance.now();
    button?.click();
    while (!document.querySelector("[data-message]")) await new Promise((ok) => requestAnimationFrame(ok));
    await new Promise((ok) => requestAnimationFrame(ok));
    return performance.now() - began;
  });
  const size = () => page.evaluate(() => [document.querySelectorAll("[data-message]").length, document.querySelectorAll("*").length]);
  console.log(`2,000 messages: open in ${opened.toFixed(0)} ms, ${(await size()).join(" of them and elements in all: ")}`);

  await page.evaluate(() => {
    const times: number[] = [];
    Object.assign(window, { times });
    addEventListener(
      "keydown",
      (event) => {
        requestAnimationFrame(() => {
          const channel = new MessageChannel();
          channel.port1.onmessage = () => times.push(performance.now() - event.timeStamp);
          channel.port2.postMessage(null);
        });
      },
      true,
    );
  });
  await composer(page).pressSequentially("The quick brown fox jumps over the lazy dog. ".repeat(3), { delay: 25 });
  const times = await page.evaluate(() => (window as unknown as { times: number[] }).times.sort((a, b) => a - b));
  const at = (share: number) => (times[Math.floor(times.length * share)] ?? Number.NaN).toFixed(1);
  console.log(`a key press until its frame: median ${at(0.5)} ms, 95th percentile ${at(0.95)} ms of ${String(times.length)}`);
  expect(times.length).toBeGreaterThan(100);

  // All the way up and down again: every message comes by, and there are never many.
  const scroller = page.getByRole("region", { name: "Conversation" });
  await scroller.focus();
  await page.keyboard.press("Home");
  await expect(page.locator('[aria-posinset="1"]')).toBeInViewport();
  let most = 0;
  await scroller.hover();
  for (let n = 0; n < 60; n++) {
    await page.mouse.wheel(0, 2400);
    most = Math.max(most, (await size())[0] ?? 0);
  }
  expect(await page.locator('[aria-posinset="1"]').count()).toBe(0);
  expect(most).toBeLessThanOrEqual(88);
  await scroller.focus();
  await page.keyboard.press("End");
  await expect(page.locator('[aria-posinset="2000"]')).toBeInViewport();
});

test("scrolling up through a long conversation never jumps", async ({ page }) => {
  await open(page, "thread=2000&fresh");
  await entry(page, "A long conversation").click();
  const scroller = page.getByRole("region", { name: "Conversation" });
  await scroller.hover();
  await expect(page.locator('[aria-posinset="2000"]')).toBeInViewport();
  for (let n = 0; n < 40; n++) {
    const before = await page.evaluate(() => {
      const top = document.querySelector(".scroller")?.getBoundingClientRect().top ?? 0;
      const first = [...document.querySelectorAll<HTMLElement>("[data-message]")].find((m) => m.getBoundingClientRect().bottom > top + 1);
      return { id: first?.dataset.message ?? "", at: first?.getBoundingClientRect().top ?? 0 };
    });
    await page.mouse.wheel(0, -400);
    await page.waitForTimeout(60);
    const at = await page.evaluate((id) => document.querySelector(`[data-message="${id}"]`)?.getBoundingClientRect().top, before.id);
    expect(Math.abs((at ?? Number.NaN) - before.at - 400)).toBeLessThan(2);
  }
});

test("a very long answer does not slow the page down", async ({ page }) => {
  await open(page, "speed=3000&fresh");
  await ask(page, "a long one");
  await done(page);
  await expect(answers(page)).toContainText("Paragraph 60");
});
