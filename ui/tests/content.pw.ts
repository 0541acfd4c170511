import { answers, ask, composer, done, expect, open, test } from "./support";

test("hostile Markdown does nothing, and no picture is asked for", async ({ page, foreign }) => {
  await open(page);
  await ask(page, "something hostile");
  await done(page);
  await expect(answers(page)).toContainText("End of it.");
  expect(await page.evaluate(() => window.hacked)).toBeUndefined();
  await expect(answers(page).locator("img, script, iframe, style, [href], [src], [style], [onclick], [onmouseover]")).toHaveCount(0);
  await expect(page.locator("body")).toBeVisible();
  await expect(answers(page).getByRole("link", { name: /tracking/ })).toContainText("https://tracker.example/pixel.png?secret=1");
  for (const link of await answers(page).getByRole("link").all()) {
    expect(await link.getAttribute("data-link")).toMatch(/^https?:\/\//);
  }
  expect(foreign).toEqual([]);
});

test.describe("the control", () => {
  test.use({ refusals: true });

  test("the page's policy is in force", async ({ page }) => {
    await open(page);
    // The control: what the policy must refuse is refused.
    const refused = await page.evaluate(async () => {
      const blocked = new Promise<string>((ok) => {
        document.addEventListener("securitypolicyviolation", (event) => { ok(event.effectiveDirective); }, { once: true });
      });
      const picture = new Image();
      picture.src = "https://tracker.example/p.png";
      return blocked;
    });
    expect(refused).toBe("img-src");
    const evaluated = await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.hacked = 9";
      document.body.append(script);
      return window.hacked;
    });
    expect(evaluated).toBeUndefined();
  });
});

test("a link opens only after its address was shown", async ({ page }) => {
  await open(page);
  await ask(page, "hello");
  await done(page);
  const link = answers(page).getByRole("link", { name: "link" });
  const dialog = page.getByRole("dialog", { name: "Open this link?" });
  await link.click();
  await expect(dialog).toContainText("https://example.org/a?b=c#d");
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  await expect(link).toBeFocused();
  expect(await page.evaluate(() => window.stub.opened)).toEqual([]);
  await page.keyboard.press("Enter");
  await dialog.getByRole("button", { name: "Open in the browser" }).click();
  await expect(dialog).toHaveCount(0);
  expect(await page.evaluate(() => window.stub.opened)).toEqual(["https://example.org/a?b=c#d"]);
  await link.click({ button: "middle" });
  await link.click({ modifiers: ["ControlOrMeta"] });
  await expect(dialog).toBeVisible();
  await page.evaluate(() => (window.stub.failures.openLink = { code: "internal", message: "no browser" }));
  await dialog.getByRole("button", { name: "Open in the browser" }).click();
  await expect(dialog.getByText("The link could not be opened")).toBeVisible();
  expect(page.url()).toContain("/dev.html");
  expect(page.context().pages()).toHaveLength(1);
});

test("code is copied by keyboard, and that is said", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await open(page);
  await ask(page, "newton");
  await done(page);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await answers(page).getByRole("button", { name: "Copy", exact: true }).first().focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Copied" })).toBeVisible();
  await expect(page.getByTestId("said")).toContainText("Copied to the clipboard.");
  expect(await clipboard()).toMatch(/^\/\/\/ The square root[\s\S]*\n}$/);
  await answers(page).locator("li").getByRole("button", { name: "Copy", exact: true }).click();
  expect(await clipboard()).toBe("guess = 1e9");
  await page.getByRole("button", { name: "Copy the answer" }).click();
  expect(await clipboard()).toContain("$$\nx_{n+1}");
});

test("whole sentences are announced, and code only by its length", async ({ page }) => {
  await open(page, "speed=60");
  await page.evaluate(() => {
    const heard: string[] = [];
    Object.assign(window, { heard });
    const log = document.querySelector('[data-testid="said"]');
    new MutationObserver((changes) => {
      for (const change of changes) for (const node of change.addedNodes) heard.push(node.textContent ?? "");
    }).observe(log as Node, { childList: true });
  });
  await ask(page, "What is the capital of France?");
  await done(page);
  await ask(page, "show me code");
  await done(page);
  await expect(page.getByTestId("said")).toContainText("Answer complete.");
  const heard = await page.evaluate(() => (window as unknown as { heard: string[] }).heard);
  const text = heard.join(" ");
  expect(text).toContain("Paris is the capital of France.");
  expect(text).toContain("About two million people live in the city itself.");
  expect(text).toContain("Code in ts, 24 lines.");
  expect(text).not.toContain("export const");
  for (const saying of heard) expect(saying.trim()).toMatch(/[.!?:]$/);
  expect(text.match(/It lies on the Seine/g)).toHaveLength(1);
});

test("a file dropped on the page does not replace it", async ({ page }) => {
  await open(page);
  const prevented = await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["x"], "x.html", { type: "text/html" }));
    const drop = (on: Element) => !on.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    return [drop(document.body), drop(document.querySelector("textarea") as Element)];
  });
  expect(prevented).toEqual([true, true]);
  await expect(composer(page)).toBeVisible();
});

test("a formula that is too wide does not move the thread sideways", async ({ page }) => {
  await open(page);
  await page.evaluate(() => { window.stub.answer = `A line with $${"x".repeat(2000)}$ in it.`; });
  await ask(page, "anything");
  await done(page);
  await answers(page).locator("math").waitFor();
  const wide = await page.evaluate(() => {
    const size = (selector: string) => {
      const element = document.querySelector(selector);
      return (element?.scrollWidth ?? 0) - (element?.clientWidth ?? 0);
    };
    return [size(".scroller"), size(".markdown")];
  });
  expect(wide[0]).toBe(0);
  expect(wide[1]).toBeGreaterThan(100);
});
