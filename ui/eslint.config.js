import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import ts from "typescript-eslint";
import svelteConfig from "./svelte.config.js";

/** Walls between the parts: what a folder must not import. */
const wall = (files, patterns) => ({
  files,
  rules: { "no-restricted-imports": ["error", { patterns }] },
});
const tauri = { group: ["@tauri-apps/*"], message: "Only ipc.ts reaches the shell." };
const stub = { group: ["**/dev/*"], message: "The stub is never part of the product." };

export default ts.config(
  { ignores: ["dist/", "dist-dev/", "test-results/", "src/gen/"] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: { ...globals.browser } } },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: {
      parserOptions: { parser: ts.parser, extraFileExtensions: [".svelte"], svelteConfig },
    },
  },
  {
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-console": "error",
      "no-undef": "off",
      // Maps that nothing renders are plain on purpose.
      "svelte/prefer-svelte-reactivity": "off",
      "svelte/button-has-type": "error",
      "svelte/no-target-blank": "error",
      "svelte/require-each-key": "error",
    },
  },
  wall(["src/**"], [tauri, stub]),
  wall(["src/ipc.ts", "src/ipc.test.ts"], [stub]),
  wall(
    ["src/shared/**"],
    [tauri, stub, { group: ["**/pages/*", "**/pages", "**/ipc", "**/gen/*"], message: "Shared parts know neither pages nor the engine." }],
  ),
  { files: ["*.config.*", "tests/**", "dev/**"], languageOptions: { globals: { ...globals.node } }, rules: { "no-console": "off" } },
);
