import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

/** Functions and the state that pages share; what is drawn is tested in a browser (`tests`). */
export default defineConfig({ plugins: [svelte()], test: { include: ["src/**/*.test.ts"] } });
