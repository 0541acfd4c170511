import { expect, open, test } from "./support";

async function settings(page: import("@playwright/test").Page, query = "") {
  await open(page, query);
  await page.getByRole("button", { name: "Settings" }).click();
  await expect(page.getByRole("heading", { name: "Settings" })).toBeFocused();
}

const kept = (page: import("@playwright/test").Page) => page.evaluate(() => window.stub.settings());

test("the theme changes at once", async ({ page }) => {
  await settings(page);
  const root = page.locator("html");
  await page.getByText("Dark", { exact: true }).click();
  await expect(root).toHaveAttribute("data-theme", "dark");
  await page.getByRole("radio", { name: "Dark" }).press("ArrowLeft");
  await expect(root).toHaveAttribute("data-theme", "light");
  await page.getByText("System", { exact: true }).click();
  await expect(root).not.toHaveAttribute("data-theme");
});

test("a shortcut is recorded and removed, and its trouble is told", async ({ page }) => {
  await settings(page, "shortcut=taken");
  await expect(page.getByText("The shortcut does not work: another program has it")).toBeVisible();
  const button = page.getByRole("button", { name: /Record a shortcut/ });
  await button.click();
  await page.keyboard.press("k");
  await expect(page.getByText("Needs Ctrl, Alt or Command")).toBeVisible();
  await page.keyboard.press("Control+Alt+k");
  await expect(button).toHaveText("Ctrl+Alt+K");
  expect((await kept(page)).shortcut).toBe("CmdOrCtrl+Alt+K");
  // As in Safari, where a click gives no focus.
  await page.getByRole("heading", { name: "Settings" }).focus();
  await button.evaluate((element: HTMLElement) => { element.click(); });
  await page.keyboard.press("Control+Alt+j");
  await expect(button).toHaveText("Ctrl+Alt+J");
  await button.click();
  await page.keyboard.press("Control+Alt+k");
  await button.click();
  await page.keyboard.press("Escape");
  await expect(button).toHaveText("Ctrl+Alt+K");
  await page.getByRole("button", { name: "Remove" }).click();
  await expect(button).toHaveText("None");
  await expect(button).toBeFocused();
  expect((await kept(page)).shortcut).toBe("");
  await expect(page.getByText("The shortcut does not work")).toHaveCount(0);
});

test("numbers may be blank and must be sensible", async ({ page }) => {
  await settings(page);
  const temperature = page.getByRole("textbox", { name: "Temperature" });
  await temperature.fill("0.7");
  await temperature.press("Tab");
  await expect.poll(async () => (await kept(page)).chat.temperature).toBe(0.7);
  await temperature.fill("9");
  await temperature.press("Tab");
  await expect(page.getByText("A number from 0 to 2, or nothing.")).toBeVisible();
  await expect(temperature).toHaveAttribute("aria-invalid", "true");
  expect((await kept(page)).chat.temperature).toBe(0.7);
  await temperature.fill("");
  await temperature.press("Tab");
  await expect.poll(async () => (await kept(page)).chat.temperature).toBeNull();
  const most = page.getByRole("textbox", { name: "Longest answer" });
  await most.fill("1.5");
  await most.press("Tab");
  await expect(page.getByText("A whole number from 1, or nothing.")).toBeVisible();
  await most.fill("512");
  await most.press("Tab");
  await expect.poll(async () => (await kept(page)).chat.max_tokens).toBe(512);
  const system = page.getByRole("textbox", { name: "System message" });
  await system.fill("Be brief.");
  await system.press("Tab");
  await expect.poll(async () => (await kept(page)).chat.system).toBe("Be brief.");
});

test("the endpoint is switched, says where it is, and offers another port", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await settings(page);
  const toggle = page.getByRole("switch", { name: "Answer other programs on this machine" });
  await toggle.click();
  await expect(page.getByText("http://127.0.0.1:8080/v1")).toBeVisible();
  await page.getByRole("button", { name: "Copy the base URL" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("http://127.0.0.1:8080/v1");
  await toggle.click();
  await expect(page.getByText("http://127.0.0.1:8080/v1")).toHaveCount(0);
  await page.evaluate(() => (window.stub.takenPort = 8080));
  await toggle.click();
  await expect(page.getByRole("main").getByText("The endpoint could not start")).toBeVisible();
  await expect(page.getByText("taken by python3 (process 4711)")).toBeVisible();
  await page.getByRole("button", { name: "Use port 8081" }).click();
  await expect(page.getByText("http://127.0.0.1:8081/v1")).toBeVisible();
  const port = page.getByRole("textbox", { name: "Port" });
  await expect(port).toHaveValue("8081");
  await port.fill("80");
  await port.press("Tab");
  await expect(page.getByText("A whole number from 1024 to 65535.")).toBeVisible();
  await port.fill("9000");
  await port.press("Tab");
  await expect(page.getByText("http://127.0.0.1:9000/v1")).toBeVisible();
});

test("a switch elsewhere shows here", async ({ page }) => {
  await settings(page);
  await page.evaluate(() => window.stub.setEndpoint(true));
  await expect(page.getByRole("switch")).toHaveAttribute("aria-checked", "true");
});

test("a folder that is refused says so beside it", async ({ page }) => {
  await open(page);
  await page.getByRole("button", { name: "Settings" }).click();
  const folder = page.getByLabel("Another folder with models");
  await page.evaluate(() => (window.stub.failures.setSettings = { code: "invalid_request", message: "models.folder: must be an absolute path" }));
  await folder.fill("relative");
  await folder.press("Enter");
  await expect(page.getByText("must be an absolute path")).toBeInViewport();
  await expect(folder).toHaveAttribute("aria-invalid", "true");
  await page.evaluate(() => { window.stub.failures = {}; });
  await folder.fill("");
  await folder.press("Enter");
  await expect(page.getByText("must be an absolute path")).toHaveCount(0);
});

test("a setting that cannot be saved is told", async ({ page }) => {
  await settings(page);
  await page.evaluate(() => (window.stub.failures.setSettings = { code: "io", message: "settings.toml: read-only" }));
  await page.getByText("Dark", { exact: true }).click();
  await expect(page.getByText("settings.toml: read-only")).toBeVisible();
});
