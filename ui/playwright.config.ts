import { defineConfig } from "@playwright/test";

/** The built page over the stub backend, in the system's Chromium. */
export default defineConfig({
  testDir: "tests",
  testMatch: "*.pw.ts",
  workers: 1,
  reporter: "list",
  timeout: 60_000,
  expect: { timeout: 10_000 },
  outputDir: "test-results",
  use: {
    baseURL: "http://127.0.0.1:4173",
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
    command: "npm run build:dev && npx vite preview --config vite.dev.config.ts",
    url: "http://127.0.0.1:4173/dev.html",
    reuseExistingServer: false,
    timeout: 120_000,
  },
});
