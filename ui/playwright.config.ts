import { defineConfig } from "@playwright/test";

// Another on each run, so that two checkouts may be tested at once; the workers read it from the first process's environment.
const port = (process.env.RMLX_PAGES_PORT ??= String(20_000 + Math.floor(Math.random() * 10_000)));
const address = `http://127.0.0.1:${port}`;

/** The built page over the stub backend, in the system's Chromium. */
export default defineConfig({
  testDir: "tests",
  testMatch: "*.pw.ts",
  workers: 1,
  // Real time on a machine that others may use: one more try, which the list shows as flaky.
  retries: 1,
  reporter: "list",
  timeout: 60_000,
  expect: { timeout: 10_000 },
  outputDir: "test-results",
  use: {
    baseURL: address,
    viewport: { width: 900, height: 640 },
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
  webServer: {
    command: `npm run build:dev && npx vite preview --config vite.dev.config.ts --port ${port}`,
    url: `${address}/dev.html`,
    reuseExistingServer: false,
    timeout: 120_000,
  },
});
