import { test, type Page } from "@playwright/test";

/** Pictures of models and downloads: `SHOTS=folder npx playwright test shots.models`. */
const folder = process.env.SHOTS;
test.skip(folder === undefined, "only with SHOTS=folder");

const composer = (page: Page) => page.getByRole("textbox", { name: "Message" });

for (const theme of ["light", "dark"] as const) {
  test(`pictures of models, ${theme}`, async ({ page }) => {
    test.setTimeout(180_000);
    await page.emulateMedia({ colorScheme: theme });
    const shot = async (name: string) => {
      await page.waitForTimeout(250);
      await page.screenshot({ path: `${folder ?? ""}/${theme}-${name}.png` });
    };
    const open = async (query = "") => {
      await page.goto(`/dev.html?platform=macos&fresh&load=20&${query}`);
      await composer(page).waitFor();
    };
    const models = async (query = "") => {
      await open(query);
      await page.getByRole("button", { name: /^Models/ }).click();
      await page.getByRole("heading", { name: "Models" }).waitFor();
      await page.getByText("Atlas 4B").first().waitFor();
    };
    const section = (name: string) => page.getByRole("heading", { name, exact: true }).scrollIntoViewIfNeeded();
    const plan = async (repo: string) => {
      await page.getByRole("searchbox").fill(repo);
      await page.getByRole("searchbox").press("Enter");
      await page.getByRole("dialog").getByText("Asking the hub").waitFor({ state: "hidden" });
    };

    await open("models=demo");
    await page.getByText("Atlas 4B").waitFor();
    await shot("first-run");
    await page.getByRole("button", { name: "Get it: Atlas 4B" }).click();
    await page.getByRole("button", { name: "Download", exact: true }).waitFor();
    await shot("first-plan");
    await page.getByRole("button", { name: "Download", exact: true }).click();
    await page.getByText("minute").waitFor();
    await composer(page).fill("What is the capital of France?");
    await shot("first-downloading");
    await composer(page).press("Enter");
    await page.locator('li[data-role="assistant"]').waitFor();
    await page.evaluate(() => { window.stub.hub.rate = 4e9; });
    await page.getByText("is ready.").last().waitFor();
    await shot("first-ready");
    await open("models=none");
    await page.getByText("Atlas 4B").waitFor();
    await shot("first-nothing");

    await models("pulls=fetching");
    await shot("models");
    await section("Get a model");
    await shot("models-get");
    await page.getByRole("searchbox").fill("example");
    await page.getByText("Colossus").waitFor();
    await section("Hugging Face");
    await shot("models-search");
    await section("Access to Hugging Face");
    await shot("models-token");
    await models("models=demo&pulls=fetching,queued,listing,waiting,verifying,paused,done,elsewhere");
    await section("Downloads");
    await shot("downloads");
    await page.getByText("Elsewhere-8B").scrollIntoViewIfNeeded();
    await shot("downloads-more");
    await models("models=demo&pulls=full,bad,gated");
    await section("Downloads");
    await shot("failed");

    await models();
    await plan("example/Atlas-4B-4bit");
    await shot("plan");
    await page.keyboard.press("Escape");
    await plan("example/Atlas-32B-4bit");
    await shot("plan-tight");
    await page.keyboard.press("Escape");
    await plan("example/Colossus-400B");
    await shot("plan-full");
    await page.keyboard.press("Escape");
    await plan("example/Octopus-8x7B");
    await shot("plan-unsupported");
    await page.keyboard.press("Escape");
    await plan("example/Atlas-1B-base");
    await shot("plan-base");
    await page.keyboard.press("Escape");
    await plan("example/Nothing");
    await shot("plan-not-found");
    await page.keyboard.press("Escape");
    await plan("example/Harbour-8B");
    await shot("gated");
    await page.getByRole("dialog").getByLabel("Access token").fill("hf_wrong");
    await page.getByRole("dialog").getByLabel("Access token").press("Enter");
    await page.getByText("does not accept this token").waitFor();
    await shot("gated-wrong");
    await page.keyboard.press("Escape");

    await models("load=9000");
    await page.getByRole("button", { name: "Load: Qwen3-8B-4bit" }).click();
    await page.evaluate(() => { window.stub.hub.verifyMs = 9000; });
    await page.getByRole("button", { name: "Check files: Llama" }).click();
    await page.waitForTimeout(3000);
    await shot("loading-checking");
    await models();
    await page.evaluate(() => { window.stub.hub.verifyMs = 100; window.stub.hub.wrong = ["model.safetensors"]; });
    await page.getByRole("button", { name: "Check files: Llama" }).click();
    await page.getByText("damaged or missing").first().waitFor();
    await shot("check-bad");
    await page.getByRole("button", { name: "Remove: Qwen3-8B-4bit" }).click();
    await shot("remove");
    await page.setViewportSize({ width: 480, height: 640 });
    await open("models=many&pulls=fetching,waiting,paused");
    await page.getByRole("button", { name: "Show conversations" }).click();
    await page.getByRole("button", { name: /^Models/ }).click();
    await page.getByText("Atlas 4B").first().waitFor();
    await shot("narrow-many");
    await section("Downloads");
    await shot("narrow-downloads");
    await section("Get a model");
    await shot("narrow-get");
    await page.getByRole("button", { name: "Get: Atlas 4B" }).click();
    await page.getByRole("button", { name: "Download", exact: true }).waitFor();
    await shot("narrow-plan");
  });
}
