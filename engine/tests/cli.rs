//! The real binary: what it prints where, and how it ends.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Stdio;

use common::{Ended, Rmlx, end, signal, wait_for};
use serde_json::Value;

#[test]
fn usage_errors_exit_with_2() {
    let rmlx = Rmlx::new();
    for args in [
        &[][..],
        &["fly"],
        &["run"],
        &["run", "MODEL", "hi", "--no-such-flag"],
        &["run", "MODEL", "hi", "--prompt", "there"],
        &["run", "MODEL", "--raw-prompt", "hi", "--system", "be brief"],
        &["run", "MODEL", "hi", "--logprobs", "2"],
        &["run", "MODEL", "hi", "--logprobs", "21", "--json"],
        &["run", "MODEL", "hi", "--max-tokens", "0"],
        &["run", "MODEL", "hi", "--temperature=-1"],
        &["run", "MODEL", "hi", "--device", "tpu"],
        &["--log", "loud", "list"],
        &["logits", "MODEL", "hi"],
        &["bench", "MODEL", "--ctx", "128,x"],
        &["bench", "MODEL", "--ctx", "0"],
        &["import"],
        // Nothing on standard input either.
        &["run", "MODEL"],
        &["run", "MODEL", "-"],
    ] {
        let ended = rmlx.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}: {ended:#?}");
        assert!(ended.stderr.contains("--help") || args.is_empty(), "{args:?}: {ended:#?}");
    }
}

#[test]
fn failures_exit_with_1_and_say_why() {
    let rmlx = Rmlx::new();
    for args in [
        &["run", "no-such-model", "hi"][..],
        &["chat", "no-such-model"],
        &["info", "no-such-model"],
        &["bench", "no-such-model"],
        &["logits", "no-such-model", "hi", "--out", "unused.safetensors"],
    ] {
        let ended = rmlx.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{args:?}: {ended:#?}");
        assert!(ended.stderr.starts_with("error: no model is called no-such-model"), "{ended:#?}");
    }
    for (args, complaint) in [
        (&["run", "MODEL", "--prompt-ids", "/no/such/file"][..], "/no/such/file"),
        (&["run", "MODEL", "--prompt-ids", "/dev/null"], "no token ids"),
        (&["logits", "MODEL", "hi", "--out", "/dev/null/l.safetensors"], "/dev/null/l.safetensors"),
        (&["import", "/no/such/file.gguf"], "error: "),
    ] {
        let ended = rmlx.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{args:?}: {ended:#?}");
        assert!(ended.stderr.contains(complaint), "{ended:#?}");
    }
}

#[test]
fn run_streams_text() {
    let rmlx = Rmlx::new();
    let ended = rmlx.run(&["--device", "cpu", "run", "MODEL", "hi", "--max-tokens", "8", "--ignore-eos"]).ok();
    assert!(ended.stdout.ends_with('\n') && ended.stdout.len() > 1, "{ended:#?}");
    assert_eq!(ended.stderr, "", "not a terminal: no progress");
}

#[test]
fn run_reports_as_json() {
    let rmlx = Rmlx::new();
    let args = ["run", "MODEL", "hi", "--max-tokens", "8", "--ignore-eos", "--device", "cpu", "--json", "--logprobs", "2"];
    let ended = rmlx.run(&args).ok();
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:#?}");
    let report = ended.json();
    let text = |key: &str| report[key].as_str().unwrap_or_else(|| panic!("{key}: {report:#}")).to_owned();
    assert_ne!(text("text"), "");
    assert_eq!((text("device"), text("finish_reason")), ("cpu".into(), "length".into()));
    assert_eq!(text("model"), rmlx.model());
    text("dtype");
    assert_eq!(report["token_ids"].as_array().unwrap().len(), 8);
    assert_eq!(report["usage"]["completion_tokens"], 8);
    assert!(report["usage"]["prompt_tokens"].as_u64().unwrap() >= 2);
    assert!(report["kv_bytes"].as_u64().unwrap() > 0);
    assert!(report["timings"]["total_ms"].is_number());
    let logprobs = report["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 8);
    assert!(logprobs.iter().all(|l| l["top"].as_array().unwrap().len() == 2), "{report:#}");
}

#[test]
fn token_ids_are_the_last_line() {
    let rmlx = Rmlx::new();
    let ended = rmlx.run(&["run", "MODEL", "hi", "--max-tokens", "5", "--ignore-eos", "--emit-token-ids"]).ok();
    let last = ended.json();
    assert_eq!(last.as_object().unwrap().len(), 1);
    assert_eq!(last["token_ids"].as_array().unwrap().len(), 5);
    assert!(ended.stdout.lines().count() >= 2, "text first: {ended:#?}");
}

#[test]
fn prompts_in_every_form() {
    let rmlx = Rmlx::new();
    let ids = rmlx.folder.path().join("ids.json");
    fs::write(&ids, "[104, 105]").unwrap();
    let ids = ids.to_str().unwrap();
    let prompt_tokens = |args: &[&str], stdin: &str| {
        let args = [&["run", "MODEL", "--json", "--max-tokens", "1", "--ignore-eos"], args].concat();
        rmlx.run_with(&args, stdin).ok().json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(prompt_tokens(&["--prompt-ids", ids], ""), 2);
    assert_eq!(prompt_tokens(&["--prompt-ids", "-"], "104 105\n106"), 3);
    assert_eq!(prompt_tokens(&["--raw-prompt", "hi"], ""), 2);
    let chat = prompt_tokens(&["hi"], "left unread");
    assert_eq!(prompt_tokens(&["--prompt", "hi"], ""), chat);
    assert_eq!(prompt_tokens(&[], "hi\n"), chat);
    assert_eq!(prompt_tokens(&["-"], "hi"), chat);
    assert!(prompt_tokens(&["--system", "be brief", "hi"], "") > chat);
}

#[test]
fn a_closed_standard_output_is_no_fault() {
    let rmlx = Rmlx::new();
    let mut child = rmlx.command(&["run", "MODEL", "hi", "--ignore-eos"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    drop(stdout);
    let ended = end(child);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    // Help and lists too.
    for args in [&["run", "--help"][..], &["--version"], &["info", "MODEL"], &["doctor", "--json"]] {
        let mut child = rmlx.command(args).spawn().unwrap();
        drop(child.stdout.take());
        let ended = end(child);
        assert!(!ended.stderr.contains("panic"), "{args:?}: {ended:#?}");
    }
}

#[test]
fn signals_end_an_answer() {
    let rmlx = Rmlx::new();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = rmlx.command(&["run", "MODEL", "hi", "--ignore-eos"]).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_exact(&mut [0; 1]).unwrap();
        signal(&child.id().to_string(), name);
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        let ended = end(child);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{ended:#?}");
        assert!(rest.ends_with(b"\n"), "the shell's prompt gets a line of its own");
    }
}

/// `chat` has no `--ignore-eos`: this keeps the tiny model from its special tokens.
const NO_END: [&str; 8] =
    ["--logit-bias", "128=-1e9", "--logit-bias", "129=-1e9", "--logit-bias", "130=-1e9", "--logit-bias", "131=-1e9"];

#[test]
fn chat_through_a_pipe() {
    let rmlx = Rmlx::new();
    let file = rmlx.folder.path().join("talk.json");
    let file = file.to_str().unwrap();
    let chat = ["chat", "MODEL", "--max-tokens", "4", "--system", "be brief"];
    let chat = [&chat[..], &NO_END].concat();
    let ended = rmlx.run_with(&chat, &format!("hello\n\nagain\n/save {file}\n/quit\nnever said\n")).ok();
    assert_eq!(ended.stderr, "");
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let messages = saved["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!((&messages[1]["content"], &messages[3]["content"]), (&"hello".into(), &"again".into()));
    let lines: String = [&messages[2], &messages[4]]
        .map(|answer| answer["content"].as_str().unwrap())
        .map(|text| if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") })
        .concat();
    assert_eq!(ended.stdout, lines, "the answers and no decoration");

    // Loaded, a conversation goes on where it was; reset leaves the system message.
    let again = rmlx.folder.path().join("again.json");
    let again = again.to_str().unwrap();
    rmlx.run_with(&chat[..2], &format!("/load {file}\n/save {again}\n")).ok();
    assert_eq!(fs::read_to_string(again).unwrap(), fs::read_to_string(file).unwrap());
    rmlx.run_with(&chat[..2], &format!("/load {file}\n/reset\n/system new\n/save {again}\n")).ok();
    let saved: Value = serde_json::from_str(&fs::read_to_string(again).unwrap()).unwrap();
    assert_eq!(saved["messages"], serde_json::json!([{ "role": "system", "content": "new" }]));

    for wrong in ["/fly\n", "/save\n", "/load /no/such/file\n"] {
        let ended: Ended = rmlx.run_with(&chat[..2], wrong);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stderr.starts_with("error: "), "{ended:#?}");
    }
}

#[test]
fn an_interrupt_stops_the_answer_and_keeps_the_chat() {
    let rmlx = Rmlx::new();
    let file = rmlx.folder.path().join("talk.json");
    let mut child = rmlx.command(&[&["chat", "MODEL"], &NO_END[..]].concat()).stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    stdin.write_all(b"talk without end\n").unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    signal(&child.id().to_string(), "INT");
    stdin.write_all(format!("/save {}\n", file.display()).as_bytes()).unwrap();
    wait_for("the command after the answer", || file.exists());
    // Between answers there is nothing to keep it for.
    signal(&child.id().to_string(), "TERM");
    let mut rest = String::new();
    while stdout.read_line(&mut rest).unwrap() > 0 {}
    assert!(rest.ends_with('\n'));
    assert_eq!(end(child).code, Some(143));
}

#[test]
fn logits_bench_info_list_doctor() {
    let rmlx = Rmlx::new();
    let file = rmlx.folder.path().join("l.safetensors");
    rmlx.run(&["logits", "MODEL", "--raw-prompt", "hello", "--out", file.to_str().unwrap()]).ok();
    let bytes = fs::read(&file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("logits").unwrap().shape(), [5, 132]);

    let report = rmlx.run(&["bench", "MODEL", "--ctx", "8,16", "--tokens", "4", "--runs", "1", "--json"]).ok().json();
    let ctx: Vec<u64> = report["rows"].as_array().unwrap().iter().map(|row| row["ctx"].as_u64().unwrap()).collect();
    assert_eq!(ctx, [8, 16]);
    assert!(rmlx.run(&["bench", "MODEL", "--ctx", "8", "--tokens", "2"]).ok().stdout.contains("PREFILL"));

    let info = rmlx.run(&["info", "MODEL", "--json"]).ok().json();
    assert_eq!((&info["architecture"], &info["layers"], &info["vocab"]), (&"llama".into(), &2.into(), &132.into()));
    assert!(rmlx.run(&["info", "MODEL"]).ok().stdout.contains("architecture"));
    assert_eq!(rmlx.run(&["list", "--json"]).ok().json(), serde_json::json!([]));
    let empty = rmlx.run(&["list"]).ok();
    assert!(empty.stdout.is_empty() && empty.stderr.contains("no models"), "{empty:#?}");
    let checks = rmlx.run(&["doctor", "--json"]).json();
    assert!(checks.as_array().unwrap().iter().all(|check| check["name"].is_string()), "{checks:#}");
}

#[test]
fn a_flag_without_effect_says_so() {
    let rmlx = Rmlx::new();
    let ended = rmlx.run(&["list", "--temperature", "1"]).ok();
    assert!(ended.stderr.contains("warning: --temperature has no effect on `rmlx list`"), "{ended:#?}");
}

#[test]
fn input_without_end_is_refused() {
    let rmlx = Rmlx::new();
    for args in [&["run", "MODEL", "-"][..], &["run", "MODEL", "--prompt-ids", "/dev/zero"], &["chat", "MODEL"]] {
        let child = rmlx.command(args).stdin(fs::File::open("/dev/zero").unwrap()).spawn().unwrap();
        let ended = end(child);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{args:?}: {ended:#?}");
        assert!(ended.stderr.contains("more than 67108864 bytes"), "{args:?}: {ended:#?}");
    }
}

/// A pipe is opened by nobody: were it opened here, the command would wait for ever.
#[test]
fn what_is_no_file_or_lies_outside_ends_as_an_error() {
    let rmlx = Rmlx::new();
    let pipe = rmlx.folder.path().join("pipe.gguf");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let ended = rmlx.run(&["import", pipe.to_str().unwrap()]);
    assert!(ended.code == Some(1) && ended.stderr.contains("not a file"), "{ended:#?}");

    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "config.json"] {
        let path = PathBuf::from(rmlx.model()).join(name);
        let original = fs::read(&path).ok();
        let outside = rmlx.folder.path().join("outside");
        fs::write(&outside, original.as_deref().unwrap_or(b"{}")).unwrap();
        for (target, complaint) in [(&outside, "out of the snapshot"), (&pipe, "not a file")] {
            let _ = fs::remove_file(&path);
            match complaint {
                "not a file" => fs::hard_link(target, &path).unwrap(),
                _ => symlink(target, &path).unwrap(),
            }
            for command in ["run", "info"] {
                let args =
                    if command == "run" { vec![command, "MODEL", "hi", "--max-tokens", "1"] } else { vec![command, "MODEL"] };
                let ended = rmlx.run(&args);
                assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{name}: {ended:#?}");
                assert!(ended.stderr.contains(complaint) && ended.stderr.contains(name), "{name}: {ended:#?}");
            }
        }
        fs::remove_file(&path).unwrap();
        if let Some(original) = original {
            fs::write(&path, original).unwrap();
        }
    }
    rmlx.run(&["run", "MODEL", "hi", "--max-tokens", "1"]).ok();
}

#[test]
fn a_name_is_not_a_way_out_of_the_models_folder() {
    let rmlx = Rmlx::new();
    let models = rmlx.home().join("models");
    fs::create_dir_all(&models).unwrap();
    // Names are looked at before the file is.
    for name in ["", ".", "..", "../up", "/abs", "a/b", ".hidden", "a\nb", "\u{1b}[31m", " ", "starter"] {
        let ended = rmlx.run(&["import", "/no/such/file.gguf", "--force", &format!("--name={name}")]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{name:?}: {ended:#?}");
        assert!(ended.stderr.contains("cannot be a model's name") && !ended.stderr.contains('\u{1b}'), "{name:?}: {ended:#?}");
    }
    let ended = rmlx.run(&["run", "\u{1b}[31mred", "hi"]);
    assert!(ended.stderr.contains("red") && !ended.stderr.contains('\u{1b}'), "{ended:#?}");
    let ended = rmlx.run(&["import", "/no/such/.gguf"]);
    assert!(ended.stderr.contains("--name gives another"), "{ended:#?}");
    assert_eq!(fs::read_dir(models).unwrap().count(), 0);
}

#[test]
fn measurements_beyond_the_context_are_refused() {
    let rmlx = Rmlx::new();
    for tokens in [u64::MAX, u64::MAX - 5, 1 << 40] {
        let ended = rmlx.run(&["bench", "MODEL", "--ctx", "8", "--runs", "1", "--tokens", &tokens.to_string()]);
        assert!(ended.code == Some(1) && ended.stderr.contains("the context holds"), "{ended:#?}");
    }
}

#[test]
fn a_failure_is_told_once_and_costs_no_file() {
    let rmlx = Rmlx::new();
    let file = rmlx.folder.path().join("talk.json");
    fs::write(&file, "old").unwrap();
    let talk = format!("/save {}\n/save /no/folder/f\n/save x\n", file.display());
    let ended = rmlx.run_with(&["chat", "MODEL"], &talk);
    assert_eq!((ended.code, ended.stderr.matches("/no/folder/f").count()), (Some(1), 1), "{ended:#?}");
    assert!(fs::read_to_string(&file).unwrap().contains("messages"));
    // Through links of our own: were a device replaced after all, it would be the link.
    for (device, code) in [("/dev/null", 0), ("/dev/full", 1)] {
        let link = rmlx.folder.path().join(code.to_string());
        symlink(device, &link).unwrap();
        let ended = rmlx.run(&["logits", "MODEL", "hi", "--out", link.to_str().unwrap()]);
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{device} was replaced");
    }
}

#[test]
fn the_log_is_there_and_keeps_prompts_to_itself() {
    let rmlx = Rmlx::new();
    rmlx.run(&["run", "MODEL", "TELLNOBODY", "--max-tokens", "2", "--system", "NORTHIS", "--stop", "STOPHERE"]).ok();
    let logs = |rmlx: &Rmlx| -> Vec<String> {
        let Ok(files) = fs::read_dir(rmlx.home().join("logs")) else { return Vec::new() };
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    };
    let text = logs(&rmlx).concat();
    assert!(text.contains("\"run\""), "{text}");
    for secret in ["TELLNOBODY", "NORTHIS", "STOPHERE"] {
        assert!(!text.contains(secret), "{text}");
    }
    let quiet = Rmlx::new();
    quiet.run(&["list", "--log", "error"]).ok();
    assert!(logs(&quiet).is_empty(), "nothing to say, no file");
}

#[test]
fn an_unwritable_state_folder_costs_one_warning() {
    let rmlx = Rmlx::new();
    for args in [&["run", "MODEL", "hi", "--max-tokens", "2", "--log", "trace"][..], &["list"]] {
        let child = rmlx.command(args).env("RMLX_HOME", "/dev/null/home").spawn().unwrap();
        let ended = end(child).ok();
        assert_eq!(ended.stderr.matches("warning: ").count(), 1, "{ended:#?}");
    }
}

#[test]
fn the_tiny_tokenizer_is_one() {
    let rmlx = Rmlx::new();
    let tokenizer = tokenizers::Tokenizer::from_file(rmlx.folder.path().join("tiny/tokenizer.json")).unwrap();
    let text = "<|im_start|>user\nHi ~ there!<|im_end|>\n\u{7f}";
    let ids = tokenizer.encode(text, true).unwrap().get_ids().to_vec();
    assert_eq!((ids.len(), ids[0], ids[1]), (20, 129, u32::from(b'u')));
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
}
