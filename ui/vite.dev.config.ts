import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** The page over the stub backend, for a browser: `dev.html`, to `dist-dev`, which is never shipped. */
export default defineConfig({
  plugins: [svelte()],
  server: { host: "127.0.0.1", port: 4173, strictPort: true, open: false },
  preview: { host: "127.0.0.1", port: 4173, strictPort: true },
  build: {
    target: "safari17",
    outDir: "dist-dev",
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: { input: "dev.html" },
  },
});
