use serde_json::json;

use super::*;
use crate::hub::remote::Hash;

const GB: u64 = 1_000_000_000;

/// A 4-bit Qwen3 8B as conversions have it; tests change what they are about.
struct Case {
    files: Vec<(&'static str, u64)>,
    config: Option<Value>,
    tokenizer_config: Option<Value>,
    index: Option<Value>,
    closed: Option<Error>,
    gated: bool,
    license: Option<&'static str>,
    machine: Machine,
}

fn case() -> Case {
    Case {
        files: vec![
            (".gitattributes", 1500),
            ("README.md", 900),
            ("config.json", 1000),
            ("generation_config.json", 200),
            ("model.safetensors", 4_600_000_000),
            ("tokenizer.json", 11_000_000),
            ("tokenizer_config.json", 9_000),
        ],
        config: Some(json!({
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
            "vocab_size": 151936, "max_position_embeddings": 40960, "quantization": { "group_size": 64, "bits": 4 },
        })),
        tokenizer_config: Some(json!({ "chat_template": "{{ messages }}" })),
        index: None,
        closed: None,
        gated: false,
        license: Some("apache-2.0"),
        machine: Machine {
            free: 100 * GB,
            reserve: 2 * GB,
            room: Some(Room { most: 16 * GB, now: 10 * GB }),
            target: Target::GPU,
        },
    }
}

impl Case {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn config(self, key: &str, value: Value) -> Self {
        self.with(|c| c.config.as_mut().unwrap()[key] = value)
    }

    fn without(self, name: &str) -> Self {
        self.with(|c| c.files.retain(|(n, _)| *n != name))
    }

    fn plan(self) -> PullPlan {
        self.plan_with(&|_| 0)
    }

    fn plan_with(self, have: &dyn Fn(&RemoteFile) -> u64) -> PullPlan {
        self.judge(have).plan
    }

    fn judge(self, have: &dyn Fn(&RemoteFile) -> u64) -> Judged {
        let files = self.files.iter().map(|(name, bytes)| RemoteFile {
            name: (*name).into(),
            bytes: *bytes,
            hash: Hash::Git("0".repeat(40)),
        });
        let listing = Listing {
            repo: "org/Name".into(),
            commit: "c".repeat(40),
            gated: self.gated,
            license: self.license.map(Into::into),
            task: None,
            files: files.collect(),
        };
        let bytes = |v: Option<Value>| v.map(|v| v.to_string().into_bytes());
        let looked = Looked {
            listing,
            revision: "main".into(),
            config: bytes(self.config),
            tokenizer_config: bytes(self.tokenizer_config),
            index: bytes(self.index),
            closed: self.closed,
        };
        let runs = Runs {
            class: &|class| match class {
                "Qwen3ForCausalLM" => Ok(()),
                other => Err(Error::Unsupported(format!("{other} is not among the architectures of this version: Qwen3"))),
            },
            model: &|config| match config.hidden_size {
                7777 => Err(Error::Unsupported("7777 is refused by its architecture".into())),
                _ => Ok(()),
            },
        };
        judge(&looked, runs, have, self.machine)
    }
}

fn names(plan: &PullPlan) -> Vec<&str> {
    plan.files.iter().map(|f| f.name.as_str()).collect()
}

#[test]
fn a_good_one_has_nothing_to_say() {
    let plan = case().plan();
    assert_eq!((plan.problems.len(), plan.notes.len()), (0, 0), "{plan:#?}");
    assert_eq!(plan.architecture.as_deref(), Some("Qwen3ForCausalLM"));
    assert_eq!(plan.quantization.as_deref(), Some("affine 4-bit, group 64"));
    assert_eq!((plan.has_chat_template, plan.license.as_deref(), plan.gated), (Some(true), Some("apache-2.0"), false));
    let wanted =
        ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(names(&plan), wanted);
    assert_eq!((plan.bytes, plan.to_fetch), (4_611_011_100, 4_611_011_100));
    assert_eq!(plan.disk, DiskRoom { free: 100 * GB, reserve: 2 * GB, fits: true });
    let memory = plan.memory.unwrap();
    assert_eq!((memory.weights, memory.headroom, memory.fits), (4_600_000_000, 10 * GB, true));
}

/// Every reason not to fetch one: the code, and a part of what the user reads.
#[test]
fn what_speaks_against_it_is_said_before() {
    let only = |files: &[(&'static str, u64)]| {
        let files = files.to_vec();
        case().with(|c| {
            c.files = files;
            c.config = None;
            c.tokenizer_config = None;
        })
    };
    let cases: Vec<(&str, Case, &str, &str)> = vec![
        (
            "only GGUF",
            only(&[("README.md", 1), ("model-Q4_K_M.gguf", GB)]),
            "unsupported_model",
            "this is a GGUF repository (model-Q4_K_M.gguf): rMLX runs safetensors",
        ),
        (
            "only a pickle",
            case().without("model.safetensors").with(|c| c.files.push(("pytorch_model.bin", GB))),
            "unsupported_model",
            "Python pickle",
        ),
        ("only ONNX", only(&[("onnx/model.onnx", GB)]), "unsupported_model", "onnx/model.onnx"),
        ("an adapter", only(&[("adapter_model.safetensors", 5)]), "unsupported_model", "it is an adapter"),
        ("only MLX's old form", only(&[("weights.npz", 5)]), "unsupported_model", "weights.npz"),
        ("safetensors of another kind", only(&[("unet/diffusion_model.safetensors", 5)]), "unsupported_model", "not read here"),
        ("nothing", only(&[("README.md", 5)]), "unsupported_model", "it has no weights"),
        ("no config", case().without("config.json").with(|c| c.config = None), "unsupported_model", "it has no config.json"),
        ("no tokenizer.json", case().without("tokenizer.json"), "unsupported_model", "it has no tokenizer.json"),
        (
            "another architecture",
            case().config("architectures", json!(["GemmaForCausalLM"])),
            "unsupported_model",
            "GemmaForCausalLM is not among",
        ),
        (
            "another architecture of another shape",
            case().with(|c| c.config = Some(json!({ "architectures": ["MambaForCausalLM"], "d_model": 5 }))),
            "unsupported_model",
            "MambaForCausalLM is not among",
        ),
        (
            "what its architecture refuses",
            case().config("hidden_size", json!(7777)),
            "unsupported_model",
            "refused by its architecture",
        ),
        ("a shape that no model has", case().config("num_attention_heads", json!(0)), "unsupported_model", "num_attention_heads"),
        ("its own code", case().config("auto_map", json!({ "AutoModel": "m.M" })), "unsupported_model", "brings its own code"),
        (
            "another quantization",
            case().config("quantization", Value::Null).config("quantization_config", json!({ "quant_method": "awq", "bits": 4 })),
            "unsupported_model",
            "take an MLX conversion",
        ),
        (
            "too large",
            case().with(|c| c.machine.room = Some(Room { most: 4 * GB, now: 4 * GB })),
            "unsupported_model",
            "this machine has 4.0 GB",
        ),
        (
            "gated",
            case().with(|c| {
                c.gated = true;
                (c.config, c.tokenizer_config) = (None, None);
                c.closed = Some(Error::Hub { cause: HubCause::Gated, message: "accept the terms at the page".into() });
            }),
            "hub_gated",
            "accept the terms",
        ),
        (
            "half an upload",
            case().without("model.safetensors").with(|c| {
                c.files.extend([(INDEX, 50), ("model-00001-of-00002.safetensors", GB)]);
                c.index = Some(
                    json!({ "weight_map": { "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors" } }),
                );
            }),
            "unsupported_model",
            "it lacks model-00002-of-00002.safetensors",
        ),
        (
            "an index that leads out",
            case().with(|c| {
                c.files.push((INDEX, 50));
                c.index = Some(json!({ "weight_map": { "a": "../../secret.safetensors" } }));
            }),
            "unsupported_model",
            "not safetensors of the repository",
        ),
        (
            "a broken index",
            case().with(|c| {
                c.files.push((INDEX, 50));
                c.index = Some(json!({ "weight_map": 5 }));
            }),
            "unsupported_model",
            "lists no files",
        ),
    ];
    for (what, case, code, text) in cases {
        let Judged { plan, errors } = case.judge(&|_| 0);
        let [problem] = &plan.problems[..] else { panic!("{what}: {:#?}", plan.problems) };
        assert!(problem.code == code && problem.message.contains(text), "{what}: {problem:#?}");
        let [error] = &errors[..] else { panic!("{what}: {errors:?}") };
        assert_eq!((error.code(), is_closed(error)), (code, code == "hub_gated"), "{what}");
    }
}

#[test]
fn files_that_are_not_json_are_no_panic() {
    for broken in ["", "[]", "{", "null", "\u{0}", "{\"architectures\": 5}", "{\"auto_map\": []}"] {
        let listing = Listing {
            repo: "o/n".into(),
            commit: String::new(),
            gated: false,
            license: None,
            task: None,
            files: vec![RemoteFile { name: SINGLE.into(), bytes: u64::MAX, hash: Hash::Git(String::new()) }; 2],
        };
        let bytes = || Some(broken.as_bytes().to_vec());
        let looked =
            Looked { listing, revision: String::new(), config: bytes(), tokenizer_config: bytes(), index: bytes(), closed: None };
        let runs = Runs { class: &|_| Ok(()), model: &|_| Ok(()) };
        assert!(!judge(&looked, runs, &|_| u64::MAX, case().machine).plan.problems.is_empty(), "{broken}");
    }
}

/// Chat or base, however the template is published.
#[test]
fn base_models_are_told_from_chat_models() {
    let bare = || case().with(|c| c.tokenizer_config = Some(json!({ "chat_template": null })));
    for (what, case, expected) in [
        ("in tokenizer_config.json", case(), Some(true)),
        (
            "several there",
            case().with(|c| c.tokenizer_config = Some(json!({ "chat_template": [{ "name": "default" }] }))),
            Some(true),
        ),
        ("as a file", bare().with(|c| c.files.push(("chat_template.jinja", 9))), Some(true)),
        ("as JSON", bare().with(|c| c.files.push(("chat_template.json", 9))), Some(true)),
        ("in a folder", bare().with(|c| c.files.push(("additional_chat_templates/tool_use.jinja", 9))), Some(true)),
        ("none", bare(), Some(false)),
        ("an empty one", case().with(|c| c.tokenizer_config = Some(json!({ "chat_template": "" }))), Some(false)),
        ("no tokenizer_config.json", case().with(|c| c.tokenizer_config = None), Some(false)),
        (
            "closed",
            case().with(|c| {
                c.closed = Some(Error::Hub { cause: HubCause::Gated, message: String::new() });
                (c.config, c.tokenizer_config) = (None, None);
            }),
            None,
        ),
    ] {
        let plan = case.plan();
        assert_eq!(plan.has_chat_template, expected, "{what}");
        let told = plan.notes.iter().any(|n| n.contains("base model"));
        assert_eq!(told, expected == Some(false), "{what}: {:?}", plan.notes);
    }
}

#[test]
fn only_what_is_read_is_fetched() {
    let plan = case()
        .without("model.safetensors")
        .with(|c| {
            c.files.extend([
                ("model-00001-of-00002.safetensors", 5),
                ("model-00002-of-00002.safetensors", 6),
                (INDEX, 7),
                ("consolidated.safetensors", GB),
                ("pytorch_model.bin.index.json", 8),
                ("pytorch_model-00001-of-00001.bin", GB),
                ("original/params.json", 8),
                ("original/consolidated.00.pth", GB),
                ("onnx/model.onnx", GB),
                ("model.gguf", GB),
                ("modeling_custom.py", 10),
                ("chat_template.jinja", 11),
                ("additional_chat_templates/tool_use.jinja", 12),
                ("additional_chat_templates/deep/er.jinja", 12),
                ("vocab.json", 13),
                ("merges.txt", 14),
                ("LICENSE", 15),
                ("picture.png", 16),
            ]);
            c.index = Some(json!({ "weight_map": {
                "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors" } }));
        })
        .plan();
    assert_eq!(plan.problems.len(), 0, "{:#?}", plan.problems);
    let wanted = [
        "README.md",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        INDEX,
        "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja",
        "vocab.json",
        "merges.txt",
        "LICENSE",
    ];
    assert_eq!(names(&plan), wanted);
    assert_eq!(plan.memory.unwrap().weights, 11);
}

#[test]
fn what_is_here_is_not_fetched_again_and_the_rest_must_fit() {
    let half = |file: &RemoteFile| if file.name == SINGLE { 2 * GB } else { 0 };
    let plan = case().plan_with(&half);
    assert_eq!(plan.bytes - plan.to_fetch, 2 * GB);
    assert_eq!(plan.files.iter().map(|f| f.have).sum::<u64>(), 2 * GB);
    // To the byte: what is to be fetched, and the reserve.
    let free = |free| case().with(|c| c.machine.free = free).plan_with(&half);
    let needed = plan.to_fetch + 2 * GB;
    assert!(free(needed).disk.fits);
    let short = free(needed - 1);
    assert!(!short.disk.fits && short.problems.is_empty());
    // More than the whole file is a lie of the disk's, and no reason to fetch less than nothing.
    assert_eq!(case().plan_with(&|_| u64::MAX).to_fetch, 0);
}

#[test]
fn what_the_user_may_accept_is_a_note() {
    let plan = case().with(|c| c.machine.room = Some(Room { most: 16 * GB, now: 3 * GB })).plan();
    assert!(plan.problems.is_empty());
    let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert!(note.contains("3.0 GB are free at this moment") && note.contains("smaller model"), "{note}");
    let plan = case().with(|c| c.license = None).plan();
    assert!(plan.notes.len() == 1 && plan.notes[0].contains("no licence"), "{:?}", plan.notes);
    // Open to this user: nothing more to do.
    let plan = case().with(|c| c.gated = true).plan();
    assert!(plan.gated && plan.problems.is_empty() && plan.notes.is_empty());
    let plan = case().with(|c| c.machine.room = None).plan();
    assert_eq!(plan.memory, None);
}

#[test]
fn sizes_are_said_as_disks_and_shops_do() {
    assert_eq!((size(1), size(999_999), size(4_500_000_000)), ("1 kB".into(), "1000 kB".into(), "4.5 GB".into()));
}
