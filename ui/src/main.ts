import { shell } from "./ipc";
import { start } from "./start";

start(shell);
