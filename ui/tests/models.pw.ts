import type { Page } from "@playwright/test";
import { answers, ask, axe, composer, done, expect, open, test } from "./support";

const said = (page: Page) => page.getByTestId("said");
const dialog = (page: Page) => page.getByRole("dialog");
const row = (page: Page, text: string) => page.getByRole("listitem").filter({ hasText: text }).first();

async function models(page: Page, query = "") {
  await open(page, `fresh&${query}`);
  await page.getByRole("button", { name: /^Models/ }).click();
  await expect(page.getByRole("heading", { name: "Models" })).toBeFocused();
  await expect(page.getByRole("heading", { name: "Get a model" })).toBeVisible();
}

/** Opens the plan of a repository that is named in the search field. */
async function plan(page: Page, repo: string) {
  await page.getByRole("searchbox").fill(repo);
  await page.getByRole("searchbox").press("Enter");
  await expect(dialog(page).getByRole("heading", { name: `Get ${repo}?` })).toBeVisible();
}

const download = (page: Page) => dialog(page).getByRole("button", { name: "Download", exact: true }).click();
const hub = (page: Page, change: (hub: typeof window.stub.hub) => void) =>
  page.evaluate(`(${change.toString()})(window.stub.hub)`);

test("first run: the demo answers at once, and a better model comes meanwhile", async ({ page }) => {
  await open(page, "models=demo&fresh&rate=40000000");
  await expect(page.getByRole("button", { name: "Model: Demo: offline, very small" })).toBeVisible();
  await expect(page.getByText("You are talking to the demo")).toBeVisible();
  const card = page.getByRole("region", { name: "You are talking to the demo" });
  await expect(card.getByText("Atlas 4B")).toBeVisible();
  await expect(card.getByText("2.3 GB · apache-2.0 · Not yet verified here")).toBeVisible();
  // No time before a rate was measured; nothing was asked of the hub.
  await expect(card.getByText(/minute/)).toHaveCount(0);
  expect(await page.evaluate(() => window.stub.calls.filter((c) => c === "plan" || c === "pull"))).toEqual([]);
  await expect(composer(page)).toBeFocused();

  await card.getByRole("button", { name: "Get it: Atlas 4B" }).click();
  await download(page);
  await expect(card.getByText(/MB of 2.3 GB · 40 MB\/s · (about|less)/)).toBeVisible();
  await expect(card.getByText("You can chat meanwhile.")).toBeVisible();
  await ask(page, "What is the capital of France?");
  await done(page);
  await expect(answers(page)).toContainText("Paris");
  await expect(page.getByRole("button", { name: /^Models.*, downloading: \d+ %$/ })).toBeVisible();

  await composer(page).fill("half a sentence");
  await hub(page, (h) => { h.rate = 4e9; });
  const offer = page.getByRole("region", { name: "A new model" });
  await expect(offer.getByText("example/Atlas-4B-4bit is ready.")).toBeVisible();
  // Who types is not disturbed.
  await expect(composer(page)).toBeFocused();
  await expect(composer(page)).toHaveValue("half a sentence");
  await expect(said(page)).toContainText("example/Atlas-4B-4bit is ready.");
  await offer.getByRole("button", { name: "Use it now" }).click();
  await expect(page.getByRole("button", { name: "Model: example/Atlas-4B-4bit" })).toBeVisible();
  await expect(offer).toHaveCount(0);
  await expect(composer(page)).toBeFocused();
  await expect.poll(() => page.evaluate(async () => (await window.stub.settings()).model)).toBe("example/Atlas-4B-4bit");
});

test("the offer can be declined, and what is not for chat is not offered", async ({ page }) => {
  await models(page, "models=demo&rate=4000000000");
  await plan(page, "example/Atlas-1B-base");
  await expect(dialog(page).getByText("a base model: it continues text")).toBeVisible();
  await download(page);
  await expect(row(page, "Atlas-1B-base").getByText("Ready")).toBeVisible();
  await expect(page.getByRole("button", { name: "Dismiss: example/Atlas-1B-base" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Use in chat: example/Atlas-1B-base" })).toHaveCount(0);
  await page.keyboard.press("Escape");
  await expect(page.getByRole("region", { name: "A new model" })).toHaveCount(0);
  await page.getByRole("button", { name: /^Models/ }).click();
  await page.getByRole("button", { name: "Get: Atlas 4B" }).click();
  await download(page);
  await expect(row(page, "Atlas-4B-4bit").getByText("Ready")).toBeVisible();
  await page.getByRole("button", { name: "Back to the conversation" }).click();
  await page.getByRole("button", { name: "Not now" }).click();
  await expect(page.getByRole("region", { name: "A new model" })).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Model: Demo: offline, very small" })).toBeVisible();
});

test("a download pauses, goes on, waits for the network and is checked", async ({ page }) => {
  await models(page, "pulls=fetching");
  const one = page.locator(".pull");
  await expect(one.getByText(/2 of 4.6 GB · 23 MB\/s · about 2 minutes left/)).toBeVisible();
  const pause = one.getByRole("button", { name: "Pause: example/Atlas-8B-4bit" });
  await pause.focus();
  await page.keyboard.press("Enter");
  await expect(one.getByText("Paused at 2 of 4.6 GB")).toBeVisible();
  await expect(said(page)).toContainText("example/Atlas-8B-4bit is paused.");
  // The same button, still with the focus.
  await expect(one.getByRole("button", { name: "Resume: example/Atlas-8B-4bit" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(one.getByText("Downloading")).toBeVisible();
  await hub(page, (h) => { h.offline = true; });
  await expect(one.getByText("Waiting for the network; it goes on by itself")).toBeVisible();
  await expect(said(page)).toContainText("waits for the network");
  await hub(page, (h) => { h.offline = false; });
  await expect(said(page)).toContainText("The network is back");
  await hub(page, (h) => { h.rate = 0; });
  await page.waitForTimeout(200);
  await expect(one.getByText("nothing comes at the moment")).toBeVisible();
  await hub(page, (h) => { h.rate = 3e9; });
  await expect(one.getByText("Ready")).toBeVisible();
  await expect(said(page)).toContainText("Checking the files of example/Atlas-8B-4bit.");
  expect(await page.locator("body").textContent()).not.toMatch(/NaN|Infinity|undefined/);
  await one.getByRole("button", { name: "Use in chat: example/Atlas-8B-4bit" }).click();
  await expect(page.getByRole("button", { name: "Model: example/Atlas-8B-4bit" })).toBeVisible();
});

test("cancelling asks first, and keeps the focus on the page", async ({ page }) => {
  await models(page, "pulls=fetching,paused");
  await page.getByRole("button", { name: "Cancel: example/Atlas-8B-4bit" }).click();
  await expect(dialog(page).getByText(/of example\/Atlas-8B-4bit are here already/)).toBeVisible();
  await dialog(page).getByRole("button", { name: "Keep" }).click();
  await expect(page.locator(".pull")).toHaveCount(2);
  await page.getByRole("button", { name: "Cancel: example/Atlas-8B-4bit" }).press("Enter");
  await dialog(page).getByRole("button", { name: "Cancel and delete" }).press("Enter");
  await expect(page.locator(".pull")).toHaveCount(1);
  await expect(said(page)).toContainText("The download of example/Atlas-8B-4bit was cancelled.");
  await expect(page.getByRole("heading", { name: "Downloads" })).toBeFocused();
});

test("a download of an earlier day, which nothing is told of, is cancelled too", async ({ page }) => {
  await models(page, "pulls=paused");
  await page.evaluate(() => { window.stub.hub.tell = () => undefined; });
  await page.getByRole("button", { name: /^Cancel: / }).click();
  await dialog(page).getByRole("button", { name: "Cancel and delete" }).click();
  await expect(page.locator(".pull")).toHaveCount(0, { timeout: 2000 });
  await expect(page.getByRole("heading", { name: "On this computer" })).toBeFocused();
});

test("failures say what to do", async ({ page }) => {
  await models(page, "pulls=full,bad,gated,elsewhere,queued,listing,verifying");
  await expect(row(page, "Full-8B").getByText("Free some space, then go on. What is here stays.")).toBeVisible();
  await expect(row(page, "Bad-8B").getByText("The files arrive damaged")).toBeVisible();
  await expect(row(page, "Elsewhere-8B").getByText("Another rMLX process downloads it.")).toBeVisible();
  await expect(row(page, "Elsewhere-8B").getByRole("button")).toHaveCount(0);
  await expect(row(page, "Queued-4B").getByText("Waiting for its turn")).toBeVisible();
  await expect(row(page, "Listing-4B").getByText("Asking the hub what there is")).toBeVisible();
  await expect(row(page, "Checking-8B").getByText("2.1 of 4.6 GB")).toBeVisible();
  // What needs a decision leads to the plan.
  await page.getByRole("button", { name: "Enter a token: example/Harbour-8B" }).click();
  await expect(dialog(page).getByText("https://huggingface.co/example/Harbour-8B")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Enter a token: example/Harbour-8B" })).toBeFocused();
  await page.evaluate(() => (window.stub.failures.pull = { code: "io", message: "/models: read-only" }));
  await page.getByRole("button", { name: "Try again: example/Full-8B" }).click();
  await expect(page.getByText("/models: read-only")).toBeVisible();
});

test("a disk that fills up on the way stops the download, which goes on later", async ({ page }) => {
  await models(page, "models=demo&rate=2000000000");
  await hub(page, (h) => { h.trouble["example/Atlas-4B-4bit"] = { at: 1e9, error: { code: "disk_full", message: "/cache: 1300000000 bytes are needed and 5 are free" } }; });
  await page.getByRole("button", { name: "Get: Atlas 4B" }).click();
  await download(page);
  await expect(page.locator(".pull").getByText("The disk is full")).toBeVisible();
  await expect(said(page)).toContainText("The download of example/Atlas-4B-4bit failed: The disk is full.");
  await hub(page, (h) => { h.trouble = {}; });
  await page.getByRole("button", { name: "Try again: example/Atlas-4B-4bit" }).click();
  await expect(page.locator(".pull").getByText("Ready")).toBeVisible();
});

test("the plan shows its arithmetic before anything is fetched", async ({ page }) => {
  await models(page);
  await plan(page, "example/Atlas-32B-4bit");
  await expect(dialog(page).getByText("18.4 GB weights + 604 MB for 8,192 tokens of context + 320 MB to work with")).toBeVisible();
  await expect(dialog(page).getByText("Does not fit: only 13.4 GB can be had now")).toBeVisible();
  await expect(dialog(page).getByText("193.6 GB stay free")).toBeVisible();
  await expect(dialog(page).getByText("apache-2.0")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog(page)).toHaveCount(0);
  await expect(page.getByRole("searchbox")).toBeFocused();
  expect(await page.evaluate(() => window.stub.calls.includes("pull"))).toBe(false);

  await plan(page, "example/Colossus-400B");
  await expect(dialog(page).getByText("Not enough room: 813 GB are needed, 212 GB are free")).toBeVisible();
  await expect(dialog(page).getByRole("button", { name: /Download/ })).toHaveCount(0);
  await page.keyboard.press("Escape");

  await plan(page, "example/Octopus-8x7B");
  await expect(dialog(page).getByText("no architecture here is called OctopusForCausalLM")).toBeVisible();
  await dialog(page).getByRole("button", { name: "Download anyway" }).click();
  await expect(row(page, "Octopus-8x7B").getByText("Downloading")).toBeVisible();

  await plan(page, "example/Nothing");
  await expect(dialog(page).getByText("The hub has no such model", { exact: true })).toBeVisible();
  await page.keyboard.press("Escape");
  await hub(page, (h) => { h.offline = true; });
  await plan(page, "example/Atlas-4B-4bit");
  await expect(dialog(page).getByText("The hub cannot be reached")).toBeVisible();
  await hub(page, (h) => { h.offline = false; });
  await dialog(page).getByRole("button", { name: "Retry" }).click();
  await expect(dialog(page).getByText("2.3 GB (3 files)")).toBeVisible();
});

test("a refused start stays in the dialog", async ({ page }) => {
  await models(page);
  await plan(page, "example/Atlas-4B-4bit");
  await page.evaluate(() => (window.stub.failures.pull = { code: "io", message: "/models: read-only" }));
  await download(page);
  await expect(dialog(page).getByText("/models: read-only")).toBeVisible();
});

test("a gated model leads to its page and to a token, which is never shown again", async ({ page }) => {
  await models(page);
  await plan(page, "example/Harbour-8B");
  await expect(dialog(page).getByText("Its publisher wants you to accept terms")).toBeVisible();
  await dialog(page).getByRole("button", { name: "Open its page" }).click();
  expect(await page.evaluate(() => window.stub.opened)).toEqual(["https://huggingface.co/example/Harbour-8B"]);
  const field = dialog(page).getByLabel("Access token");
  await expect(field).toHaveAttribute("type", "password");
  await field.press("Enter");
  await expect(dialog(page).getByText("Paste a token first.")).toBeVisible();
  await field.fill("hf_wrong");
  await field.press("Enter");
  await expect(dialog(page).getByText("The hub does not accept this token")).toBeVisible();
  await dialog(page).getByLabel("Access token").fill("hf_stranger");
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await expect(dialog(page).getByText("The account of this token has no access yet")).toBeVisible();
  await dialog(page).getByLabel("Access token").fill("  hf_good ");
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await expect(dialog(page).getByText("You have access.")).toBeVisible();
  await download(page);
  await expect(row(page, "Harbour-8B").getByText("Downloading")).toBeVisible();
  await expect(page.getByText("In the system’s keyring")).toHaveCount(0);
  expect(await page.content()).not.toContain("hf_good");
});

test("the token is kept where it can be, and forgotten", async ({ page }) => {
  await models(page);
  await hub(page, (h) => { h.storeless = true; });
  const field = page.getByLabel("Access token");
  await expect(page.getByText("No token")).toBeVisible();
  await field.fill("hf_good");
  await field.press("Enter");
  await expect(page.getByText("kept until this program ends, and not in a secure store: there is no session bus", { exact: true }).first()).toBeVisible();
  await expect(field).toHaveValue("");
  await expect(said(page)).toContainText("not in a secure store");
  await page.getByRole("button", { name: "Forget" }).click();
  await expect(page.getByText("No token")).toBeVisible();
  await expect(field).toBeFocused();
  await page.evaluate(() => (window.stub.failures.setToken = { code: "io", message: "the keyring is locked" }));
  await field.fill("hf_other");
  await field.press("Enter");
  await expect(page.getByText("the keyring is locked")).toBeVisible();
});

test("the hub is searched: results, none, a failure, a stop", async ({ page }) => {
  await models(page);
  const field = page.getByRole("searchbox");
  await field.pressSequentially("atlas 4bit", { delay: 20 });
  const results = page.getByRole("list", { name: "Hugging Face" });
  await expect(results.getByRole("listitem")).toHaveCount(3);
  // One question for all those keys.
  expect(await page.evaluate(() => window.stub.calls.filter((c) => c === "searchHub").length)).toBe(1);
  await expect(said(page)).toContainText("3 models found.");
  await field.fill("octopus");
  await expect(results.getByText("no architecture here is called OctopusForCausalLM")).toBeVisible();
  await field.fill("harbour");
  await expect(results.getByText("Needs permission")).toBeVisible();
  await field.fill("zzzz");
  await expect(page.getByText("Nothing was found for “zzzz”.")).toBeVisible();
  await hub(page, (h) => { h.delay = 5000; });
  await field.fill("atlas");
  await page.getByRole("button", { name: "Stop searching" }).click();
  await expect(field).toBeFocused();
  await expect(page.getByText("Searching…")).toHaveCount(0);
  await hub(page, (h) => { h.delay = 10; h.offline = true; });
  await field.fill("atlas 8b");
  await expect(page.getByText("The search failed").last()).toBeVisible();
  await hub(page, (h) => { h.offline = false; });
  await page.getByRole("button", { name: "Retry" }).click();
  await expect(results.getByRole("listitem")).toHaveCount(1);
  await field.press("Escape");
  await expect(field).toHaveValue("");
  // Escape in an empty field leaves the page, as elsewhere.
  await field.press("Escape");
  await expect(composer(page)).toBeVisible();
});

test("an address of a model's page is understood", async ({ page }) => {
  await models(page);
  await page.getByRole("searchbox").fill("https://huggingface.co/example/Atlas-4B-4bit/tree/v2");
  await page.getByRole("button", { name: "Look at this repository" }).click();
  await expect(dialog(page).getByRole("heading", { name: "Get example/Atlas-4B-4bit@v2?" })).toBeVisible();
});

test("suggestions are filtered by task and by what fits", async ({ page }) => {
  await models(page);
  const list = page.getByRole("list", { name: "Suggested" });
  await expect(list.getByRole("listitem")).toHaveCount(2);
  await expect(list.getByRole("listitem").first()).toContainText("Recommended");
  await expect(list.getByText("Not yet verified here")).toHaveCount(2);
  await page.getByRole("checkbox", { name: "Only what fits this computer" }).click();
  await expect(list.getByRole("listitem")).toHaveCount(4);
  await page.getByText("Pictures", { exact: true }).click();
  await expect(list.getByRole("listitem")).toHaveCount(1);
  await page.getByRole("radio", { name: "Pictures" }).press("ArrowLeft");
  await expect(list.getByRole("listitem")).toHaveCount(3);
  await models(page, "catalogue=none");
  await expect(page.getByText("There are no suggestions.")).toBeVisible();
});

test("what is here is loaded, unloaded, chosen, checked and removed", async ({ page }) => {
  await models(page);
  await expect(page.getByText("4 models, 86.5 GB in all")).toBeVisible();
  await expect(page.getByText("4.6 GB · LlamaForCausalLM · affine 4-bit, group 64 · Hugging Face cache")).toBeVisible();
  const qwen = row(page, "Qwen3-8B-4bit");
  await page.getByRole("button", { name: "Load: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("In memory")).toBeVisible();
  // It is the same place in the page, so the focus is still there.
  await page.getByRole("button", { name: "Use by default: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("Default", { exact: true })).toBeVisible();
  await expect(said(page)).toContainText("New conversations use Qwen3-8B-4bit.");
  await page.evaluate(() => (window.stub.failures.unload = { code: "invalid_request", message: "answers are being made with this model" }));
  await page.getByRole("button", { name: "Unload: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("answers are being made with this model")).toBeVisible();
  await page.evaluate(() => { window.stub.failures = {}; });
  await page.getByRole("button", { name: "Unload: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("In memory")).toHaveCount(0);

  await page.getByRole("button", { name: "Check files: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText(/Checking: .* of 4.6 GB/)).toBeVisible();
  await expect(page.getByRole("button", { name: "Check files: Llama-3.2-1B" })).toHaveAttribute("aria-disabled", "true");
  await qwen.getByRole("button", { name: "Stop checking" }).click();
  await expect(qwen.getByText(/Checking:/)).toHaveCount(0);
  await hub(page, (h) => { h.verifyMs = 100; });
  await page.getByRole("button", { name: "Check files: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("All 3 files are right.")).toBeVisible();
  await hub(page, (h) => { h.wrong = ["model.safetensors"]; });
  await page.getByRole("button", { name: "Check files: Qwen3-8B-4bit" }).click();
  await expect(qwen.getByText("model.safetensors: Damaged")).toBeVisible();
  await expect(said(page)).toContainText("1 file is damaged or missing.");

  await page.getByRole("button", { name: "Remove: Qwen3-8B-4bit" }).click();
  await expect(dialog(page).getByText("up to 4.6 GB become free")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Remove: Qwen3-8B-4bit" })).toBeFocused();
  await page.keyboard.press("Enter");
  await dialog(page).getByRole("button", { name: "Remove" }).click();
  await expect(page.getByText("3 models, 81.8 GB in all")).toBeVisible();
  await expect(said(page)).toContainText("Qwen3-8B-4bit was removed; 4.6 GB are free again.");
  await expect(page.getByRole("heading", { name: "On this computer" })).toBeFocused();
});

test("the default does not outlive its model", async ({ page }) => {
  await models(page);
  await page.getByRole("button", { name: "Use by default: Qwen3-8B-4bit" }).click();
  await page.getByRole("button", { name: "Remove: Llama-3.2-1B" }).click();
  await expect(dialog(page).getByText("It is the default now")).toHaveCount(0);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Remove: Qwen3-8B-4bit" }).click();
  await expect(dialog(page).getByText("It is the default now")).toBeVisible();
  await dialog(page).getByRole("button", { name: "Remove" }).click();
  await expect(page.getByRole("heading", { name: "On this computer" })).toBeFocused();
  expect(await page.evaluate(async () => (await window.stub.settings()).model)).toBe(null);
});

test("what another program removed is told and leaves the list", async ({ page }) => {
  for (const [action, call] of [["Load", "load"], ["Check files", "verify"], ["Remove", "removeModel"]] as const) {
    await models(page);
    await page.evaluate(([name, failing]) => {
      window.stub.failures = { [failing]: { code: "model_not_found", message: `no model is called ${name}` } };
      window.stub.forget(name);
    }, ["Llama-3.2-1B", call] as const);
    await page.getByRole("button", { name: `${action}: Llama-3.2-1B` }).click();
    if (action === "Remove") await dialog(page).getByRole("button", { name: "Remove" }).click();
    await expect(page.getByText("Llama-3.2-1B is no longer on the disk", { exact: true }).first()).toBeVisible();
    await expect(page.getByRole("button", { name: "Remove: Llama-3.2-1B" })).toHaveCount(0);
    await expect(page.getByRole("heading", { name: "On this computer" })).toBeFocused();
    await page.getByRole("button", { name: "Dismiss" }).first().click();
    await expect(page.getByText("no model is called")).toHaveCount(0);
  }
});

test("what is looked at stays where it is when a download begins above", async ({ page }) => {
  await models(page);
  const offer = page.getByRole("heading", { name: "Get a model", exact: true });
  await page.getByRole("heading", { name: "Hugging Face", exact: true }).scrollIntoViewIfNeeded();
  const before = (await offer.boundingBox())?.y;
  await page.evaluate(async () => { await window.stub.pull("example/Atlas-4B-4bit", false); });
  await expect(page.getByRole("button", { name: "Pause: example/Atlas-4B-4bit" })).toBeAttached();
  expect(Math.abs(((await offer.boundingBox())?.y ?? 0) - (before ?? 0))).toBeLessThan(2);
  await page.evaluate(async () => { await window.stub.cancelPull("example/Atlas-4B-4bit"); });
  await expect(page.getByRole("button", { name: "Pause: example/Atlas-4B-4bit" })).toHaveCount(0);
  expect(Math.abs(((await offer.boundingBox())?.y ?? 0) - (before ?? 0))).toBeLessThan(2);
});

test("a load that fails or is stopped is told in its row", async ({ page }) => {
  await models(page);
  await page.evaluate(() => (window.stub.failures.load = { code: "bad_weights", message: "a.b is missing" }));
  await page.getByRole("button", { name: "Load: Qwen3-8B-4bit" }).click();
  await expect(row(page, "Qwen3-8B-4bit").getByText("a.b is missing")).toBeVisible();
  await page.evaluate(() => { window.stub.failures = {}; window.stub.loadMs = 8000; });
  await page.getByRole("button", { name: "Load: Llama-3.2-1B" }).click();
  await row(page, "Llama-3.2-1B").getByRole("button", { name: "Stop loading" }).click();
  await expect(page.getByText("Loading Llama-3.2-1B", { exact: true })).toHaveCount(0);
});

test("what cannot be read is told, with a way on", async ({ page }) => {
  await models(page);
  await page.evaluate(() => { window.stub.failures.models = { code: "io", message: "/models: no permission" }; window.stub.failures.catalogue = { code: "bad_file", message: "catalogue: line 3" }; });
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Models/ }).click();
  const main = page.getByRole("main");
  await expect(main.getByText("What is here could not be read")).toBeVisible();
  await expect(main.getByText("catalogue: line 3")).toBeVisible();
  await page.evaluate(() => { window.stub.failures = {}; });
  for (const n of [1, 0]) await main.getByRole("button", { name: "Retry" }).nth(n).click();
  await expect(main.getByRole("button", { name: "Retry" })).toHaveCount(0);
  await expect(main.getByText("4 models")).toBeVisible();
  await expect(main.getByText("Atlas 4B")).toBeVisible();
});

test("everything by keyboard alone", async ({ page }) => {
  await open(page, "models=demo&fresh&rate=300000000");
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent?.trim() ?? "");
  const to = async (key: string, name: string) => {
    for (let n = 0; n < 40 && (await focused()) !== name; n++) await page.keyboard.press(key);
    expect(await focused()).toBe(name);
  };
  await expect(page.getByText("Atlas 4B")).toBeVisible();
  await to("Shift+Tab", "Other models");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Models" })).toBeFocused();
  await to("Tab", "Get: Atlas 4B");
  await page.keyboard.press("Enter");
  await expect(dialog(page).getByRole("button", { name: "Download", exact: true })).toBeVisible();
  await to("Tab", "Download");
  await page.keyboard.press("Enter");
  await expect(dialog(page)).toHaveCount(0);
  await expect(page.getByText(/MB of 2.3 GB/)).toBeVisible();
  await to("Shift+Tab", "Pause: example/Atlas-4B-4bit");
  await page.keyboard.press("Enter");
  await to("Tab", "Cancel: example/Atlas-4B-4bit");
  await page.keyboard.press("Enter");
  await to("Tab", "Cancel and delete");
  await page.keyboard.press("Enter");
  await expect(page.locator(".pull")).toHaveCount(0);
  await to("Tab", "Remove: Demo: offline, very small");
  await page.keyboard.press("Enter");
  await to("Tab", "Remove");
  await page.keyboard.press("Enter");
  await expect(page.getByText("No model is here yet. Get one below.")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByText("Get your first model")).toBeVisible();
});

test("the picker leads to more models", async ({ page }) => {
  await open(page);
  await page.getByRole("button", { name: "Model: Demo: offline, very small" }).click();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Models" })).toBeFocused();
  // The page comes back with its window.
  await page.waitForTimeout(400);
  await page.goto("/dev.html?load=20");
  await expect(page.getByRole("heading", { name: "Get a model" })).toBeVisible();
});

for (const width of [360, 480, 900]) {
  test(`forty models with long names at ${String(width)} pixels`, async ({ page }) => {
    await models(page, "models=many&pulls=fetching,waiting,paused,full,elsewhere");
    await page.setViewportSize({ width, height: 640 });
    await expect(page.getByText("40 models")).toBeVisible();
    await page.getByRole("searchbox").fill("example");
    await expect(page.getByRole("list", { name: "Hugging Face" }).getByRole("listitem")).toHaveCount(8);
    const wide = await page.evaluate(() => {
      const edge = document.documentElement.clientWidth + 1;
      return [...document.querySelectorAll("main *")].filter((n) => n.getBoundingClientRect().right > edge && !n.closest(".visually-hidden")).map((n) => n.className);
    });
    expect(wide).toEqual([]);
  });
}

test("the page says this Mac on a Mac only", async ({ page }) => {
  await models(page, "platform=macos");
  await expect(page.getByRole("heading", { name: "On this Mac" })).toBeVisible();
  await models(page, "platform=linux");
  await expect(page.getByRole("heading", { name: "On this computer" })).toBeVisible();
  await expect(page.getByText("Mac", { exact: false })).toHaveCount(0);
});

for (const theme of ["light", "dark"] as const) {
  test(`nothing is wrong with the accessibility of models, ${theme}`, async ({ page }) => {
    test.setTimeout(120_000);
    await page.emulateMedia({ colorScheme: theme });
    const fine = async (what: string) => {
      await page.waitForTimeout(250);
      expect(await axe(page), what).toEqual([]);
    };
    await open(page, "models=demo&fresh");
    await page.getByText("Atlas 4B").waitFor();
    await fine("first run");
    await open(page, "models=demo&fresh&pulls=fetching");
    await page.getByText("You can chat meanwhile").waitFor();
    await fine("first run, downloading");
    await hub(page, (h) => { h.rate = 8e9; });
    await page.getByRole("region", { name: "A new model" }).waitFor();
    await fine("the offer");
    await models(page, "pulls=fetching,queued,waiting,verifying,paused,done,full,gated,elsewhere");
    await fine("downloads");
    await page.getByRole("button", { name: "Cancel: example/Atlas-8B-4bit" }).click();
    await fine("cancelling");
    await page.keyboard.press("Escape");
    await page.getByRole("searchbox").fill("example");
    await page.getByText("Colossus").waitFor();
    await fine("results");
    await hub(page, (h) => { h.verifyMs = 100; h.wrong = ["config.json"]; });
    await page.getByRole("button", { name: "Check files: Qwen3-8B-4bit" }).click();
    await page.getByText("config.json: Damaged").waitFor();
    await fine("a check");
    await page.getByRole("button", { name: "Remove: Qwen3-8B-4bit" }).click();
    await fine("removing");
    await page.keyboard.press("Escape");
    for (const [repo, text] of [["Atlas-32B-4bit", "Does not fit"], ["Colossus-400B", "Not enough room"], ["Harbour-8B", "Open its page"], ["Nothing", "no such model"]] as const) {
      await plan(page, `example/${repo}`);
      await dialog(page).getByText(text).first().waitFor();
      await fine(`the plan of ${repo}`);
      await page.keyboard.press("Escape");
      await expect(dialog(page)).toBeHidden();
    }
    await hub(page, (h) => { h.delay = 20_000; });
    await plan(page, "example/Atlas-4B-4bit");
    await fine("asking");
  });
}
