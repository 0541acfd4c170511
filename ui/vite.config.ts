import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** The bundle that the shell embeds: `index.html` alone, to `dist`. */
export default defineConfig({
  plugins: [svelte()],
  server: { host: "127.0.0.1", port: 1420, strictPort: true },
  build: {
    target: "safari17",
    outDir: "dist",
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 0,
  },
});
