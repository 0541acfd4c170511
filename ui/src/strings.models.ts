/** The texts of the models page and of all that has to do with downloads. */
import type { FileState, PullPhase, Task, TokenKept } from "./gen/api";
import { bytes, count, duration, size } from "./shared/format";

const phases: Record<PullPhase, string> = {
  queued: "Waiting for its turn",
  listing: "Asking the hub what there is",
  fetching: "Downloading",
  waiting: "Waiting for the network; it goes on by itself",
  verifying: "Checking the files",
  paused: "Paused",
  done: "Ready",
  failed: "Failed",
};

const tasks: Record<Task, string> = { chat: "Chat", vision: "Pictures", speech: "Speech", embedding: "Search" };

const kept: Record<TokenKept, string> = {
  none: "No token",
  keyring: "In the system’s keyring",
  session: "Until rMLX quits",
  environment: "From HF_TOKEN",
  file: "From the hub’s own tools",
};

const states: Record<FileState, string> = { right: "Right", wrong: "Damaged", missing: "Missing", unknown: "Cannot be checked" };

export const modelsPage = {
  title: "Models",
  back: "Back to the conversation",
  open: "Models",
  /** After `open`, before the percent. */
  openBusy: ", downloading:",
  percent: (percent: number) => `${String(percent)} %`,

  here: (mac: boolean) => (mac ? "On this Mac" : "On this computer"),
  machine: (mac: boolean) => (mac ? "this Mac" : "this computer"),
  use: (n: number, all: number) => `${n === 1 ? "1 model" : `${count(n)} models`}, ${bytes(all)} in all`,
  none: "No model is here yet. Get one below.",
  unread: "What is here could not be read",
  reading: "Looking at what is here",
  demo: "Demo: offline, very small",
  demoTag: "Demo",
  isDefault: "Default",
  inMemory: "In memory",
  base: "Base model",
  baseHelp: "It continues text and does not chat.",
  problem: "Cannot run",
  load: "Load",
  unload: "Unload",
  setDefault: "Use by default",
  verify: "Check files",
  remove: "Remove",
  /** The name of a button in a list: what is written on it, and for which. */
  on: (action: string, name: string) => `${action}: ${name}`,
  defaultSaid: (name: string) => `New conversations use ${name}.`,
  unloaded: (name: string) => `${name} is no longer in memory.`,
  gone: (name: string) => `${name} is no longer on the disk`,
  loadedSaid: (name: string) => `${name} is in memory.`,
  checking: (done: number, total: number) => `Checking: ${bytes(done)} of ${bytes(total)}`,
  checkingLabel: (name: string) => `Progress of checking ${name}`,
  checkStop: "Stop checking",
  checkBegins: (name: string) => `Checking ${name}.`,
  checkFine: (n: number) => (n === 1 ? "The file is right." : `All ${count(n)} files are right.`),
  checkUnknown: (n: number) =>
    `Nothing wrong was found, but ${n === 1 ? "1 file" : `${count(n)} files`} cannot be checked: nothing here says what should be in there.`,
  checkBad: (n: number) => `${n === 1 ? "1 file is" : `${count(n)} files are`} damaged or missing.`,
  checkBadAdvice: "Download the model again: only what is wrong is fetched.",
  checkBadOwn: "Bring the model again from where it came from.",
  fetchAgain: "Download again",
  states,
  removeTitle: (name: string) => `Remove ${name}?`,
  removeText: (n: number) => `Its files are deleted from the disk; up to ${bytes(n)} become free. Conversations stay.`,
  removeLoaded: "It is in memory now and is unloaded first.",
  removeDefault: "It is the default now; new conversations will use another model.",
  removed: (name: string, n: number) => `${name} was removed; ${bytes(n)} are free again.`,

  downloads: "Downloads",
  phases,
  phase: (phase: PullPhase, done: number, total: number | null) => {
    if (phase === "paused" && total !== null) return `Paused at ${size(done, total)}`;
    return phases[phase];
  },
  of: size,
  /** Why it waits, if not for the network. */
  waits: (why: string) => `${why}; it is tried again by itself`,
  rate: (perSecond: number) => `${bytes(perSecond)}/s`,
  silent: "nothing comes at the moment",
  left: (seconds: number) => `${duration(seconds)} left`,
  progress: (repo: string) => `Progress of ${repo}`,
  elsewhere: "Another rMLX process downloads it.",
  pause: "Pause",
  resume: "Resume",
  again: "Try again",
  cancel: "Cancel",
  discard: "Discard",
  chatWith: "Use in chat",
  token: "Enter a token",
  cancelTitle: "Cancel this download?",
  cancelText: (repo: string, n: number) => `${bytes(n)} of ${repo} are here already and are deleted. To go on later, pause it instead.`,
  cancelYes: "Cancel and delete",
  cancelNo: "Keep",
  cancelled: (repo: string) => `The download of ${repo} was cancelled.`,
  /** Said when a download gets there; empty: nothing worth saying. */
  said: (repo: string, phase: PullPhase, was: PullPhase | null, problem: string): string => {
    switch (phase) {
      case "fetching":
        return was === "waiting" ? `The network is back: ${repo} goes on.` : `Downloading ${repo}.`;
      case "waiting":
        return `${repo} waits for the network.`;
      case "verifying":
        return `Checking the files of ${repo}.`;
      case "paused":
        return `${repo} is paused.`;
      case "done":
        return `${repo} is ready.`;
      case "failed":
        return `The download of ${repo} failed: ${problem}.`;
      default:
        return "";
    }
  },

  get: "Get a model",
  task: "For",
  tasks,
  allTasks: "All",
  fits: (mac: boolean) => `Only what fits ${mac ? "this Mac" : "this computer"}`,
  catalogue: "Suggested",
  nothingFits: "No suggestion fits. Clear the filter, or search the hub.",
  catalogueEmpty: "There are no suggestions. Search the hub below.",
  recommended: "Recommended",
  unverified: "Not yet verified here",
  verified: "Verified",
  forMemory: (gb: number) => `for ${count(gb)} GB of memory`,
  installed: "Here",
  downloading: (percent: number | null) => (percent === null ? "Downloading" : `Downloading ${String(percent)} %`),
  getIt: "Get",
  searchTitle: "Hugging Face",
  search: "Search, or a name: ORG/NAME",
  searchLabel: "Search Hugging Face, or name a repository",
  searching: "Searching…",
  searchStop: "Stop searching",
  searchNone: (words: string) => `Nothing was found for “${words}”.`,
  searchFound: (n: number) => (n === 0 ? "Nothing found." : n === 1 ? "1 model found." : `${count(n)} models found.`),
  searchFailed: "The search failed",
  exact: "Look at this repository",
  gated: "Needs permission",
  downloadsOf: (n: number) => `${count(n)} downloads`,
  updated: (date: string) => `changed ${date}`,

  plan: {
    title: (repo: string) => `Get ${repo}?`,
    asking: "Asking the hub…",
    failed: "This could not be looked up",
    size: "Download",
    sizeOf: (toFetch: number, all: number) => (toFetch === all ? bytes(all) : `${bytes(toFetch)} of ${bytes(all)}; the rest is here`),
    files: (n: number) => (n === 1 ? "1 file" : `${count(n)} files`),
    time: "Time",
    timeOf: (seconds: number) => `${duration(seconds)} at the rate that was measured last`,
    disk: "Disk",
    diskOf: (after: number) => `${bytes(after)} stay free`,
    diskFull: (needed: number, free: number) => `Not enough room: ${bytes(needed)} are needed, ${bytes(free)} are free. Free some space first.`,
    reserve: (n: number) => `${bytes(n)} are kept free for everything else`,
    memory: "Memory",
    memoryOf: (all: number) => `about ${bytes(all)}`,
    arithmetic: (weights: number, kv: number, context: number, workspace: number) =>
      `${bytes(weights)} weights + ${bytes(kv)} for ${count(context)} tokens of context + ${bytes(workspace)} to work with`,
    headroom: (n: number, fits: boolean) => (fits ? `Fits: ${bytes(n)} can be had now` : `Does not fit: only ${bytes(n)} can be had now`),
    unknown: "Not known",
    kind: "Model",
    license: "Licence",
    licenseNone: "None is named",
    revision: "Version",
    gated: "Its publisher asked for terms to be accepted. You have access.",
    notes: "Good to know",
    problems: "What is in the way",
    download: "Download",
    resume: "Go on downloading",
    anyway: "Download anyway",
    here: "It is here already.",
  },

  gate: {
    title: "This model needs permission",
    text: "Its publisher wants you to accept terms on Hugging Face first. Do that there, then give rMLX an access token of your account.",
    step1: "Open its page and accept the terms",
    step2: "Paste an access token (“read” is enough)",
    page: "Open its page",
    retry: "Ask again",
    stranger: "The account of this token has no access yet. Accept the terms with that account, or wait until the publisher lets you in; then ask again.",
    wrong: "The hub does not accept this token. Make a new one, or paste it again.",
  },

  tokenTitle: "Access to Hugging Face",
  tokenText: "Only models that need permission want a token. It is sent to the hub only, and never shown again.",
  tokenField: "Access token",
  tokenKept: kept,
  tokenSave: "Save",
  tokenForget: "Forget",
  tokenSaved: "The token is saved.",
  tokenForgotten: "The token is forgotten.",
  tokenEmpty: "Paste a token first.",

  first: {
    title: "You are talking to the demo",
    text: "It is offline and very small: it answers at once and knows little.",
    better: (mac: boolean) => `${mac ? "This Mac" : "This computer"} can run a much better model:`,
    titleNone: "Get your first model",
    textNone: (mac: boolean) => `rMLX answers on ${mac ? "this Mac" : "this computer"}, so it needs a model here.`,
    sizeUnknown: "Size: asked of the hub before anything is fetched",
    get: "Get it",
    others: "Other models",
    meanwhile: "You can chat meanwhile.",
    /** A download ended well. */
    ready: (name: string) => `${name} is ready.`,
    switch: "Use it now",
    later: "Not now",
    offer: "A new model",
  },
};
