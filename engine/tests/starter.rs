//! The starter model, a trained one: imported from the GGUF that set-up brings, it gives what the reference implementation gives.

mod support;

use std::ops::ControlFlow;

use rmlx_engine::api::{self, FinishReason, Message, Prompt, Request};
use rmlx_engine::hub::import;
use support::*;

/// The mean negative log-likelihood of each token but the first.
fn mean_nll(logits: &api::Logits) -> f64 {
    let nll = |(row, &next): (&[f32], &u32)| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
        sum.ln() - f64::from(row[next as usize] - max)
    };
    let all: Vec<f64> = logits.data.chunks_exact(logits.vocab).zip(&logits.tokens[1..]).map(nll).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn the_starter_model_gives_the_references_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let options = import::ImportOptions { out: folder.path().join("starter"), force: false };
    let mut last = (0, 0);
    let mut progress = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    let imported = import::gguf(&starter_gguf(), &options, &mut progress).unwrap();
    assert!(last.0 == last.1 && last.1 > 80_000_000, "{last:?}");
    let model = imported.folder.to_str().unwrap();

    let expected = json(&fixtures().join("smollm2/expected.json"));
    let text = std::fs::read_to_string(fixtures().join("smollm2/text.txt")).unwrap();
    let engine = engine(None);

    // A text: the ids exactly; its likelihood as near as weights in four bits are to the same rounded to bf16.
    let logits = engine.logits(model, Prompt::Text(text.clone())).unwrap();
    assert_eq!(logits.tokens, ids(&expected["ids"]));
    let (nll, reference) = (mean_nll(&logits), expected["mean_nll"].as_f64().unwrap());
    println!("mean NLL {nll:.4}, the reference has {reference:.4}");
    assert!((nll / reference - 1.0).abs() < 0.005, "the mean NLL is {nll}, the reference's {reference}");

    // A question, through the template.
    let question = expected["question"].as_str().unwrap();
    let chat = || Prompt::Chat { messages: vec![Message::new("user", question)], variables: Default::default() };
    let asked = |prompt| Request { prompt, max_tokens: Some(50), ..request(vec![]) };
    let answer = Answer::read(engine.generate(model, asked(chat())).unwrap());
    assert_eq!(answer.ids, ids(&expected["greedy_ids"]));
    assert_eq!(answer.text, expected["greedy_text"].as_str().unwrap());
    assert_eq!(answer.finished().reason, FinishReason::Stop);
    assert_eq!(answer.finished().usage.prompt_tokens, ids(&expected["chat_ids"]).len());
    assert_eq!(engine.logits(model, chat()).unwrap().tokens, ids(&expected["chat_ids"]));
    let rendered = Prompt::Text(expected["chat_prompt"].as_str().unwrap().into());
    assert_eq!(engine.logits(model, rendered).unwrap().tokens, ids(&expected["chat_ids"]));

    let info = engine.info(model).unwrap();
    assert_eq!((info.architecture.as_str(), info.layers, info.vocab, info.has_chat_template), ("llama", 30, 49152, true));
    assert!((134_000_000..135_000_000).contains(&info.parameters), "{}", info.parameters);
    assert!(info.quantization.is_some_and(|q| q.mode == "affine" && q.bits == 4 && q.group_size == 32));

    // As it computes unless told otherwise, with activations rounded to 16 bits: no further from the reference's likelihood.
    let options = api::Options { device: api::Device::Cpu, ..api::Options::default() };
    let quick = rmlx_engine::engine::Engine::start(options).unwrap();
    let fast = mean_nll(&quick.logits(model, Prompt::Text(text)).unwrap());
    println!("rounded: mean NLL {fast:.4}");
    assert!(fast != nll, "nothing was rounded");
    for (than, other) in [("the reference", reference), ("without rounding", nll)] {
        assert!((fast / other - 1.0).abs() < 0.005, "the mean NLL is {fast}, and {other} {than}");
    }
    let answer = Answer::read(quick.generate(model, asked(chat())).unwrap());
    println!("rounded: {}", answer.text);
    assert_eq!(answer.finished().reason, FinishReason::Stop);
    drop(quick);

    // Weights stay as they are stored; unpacked, these would be five times as much. Status comes after what was dropped.
    engine.status();
    let (resident, stored) = (engine.status().active_bytes, imported.folder.join("model.safetensors").metadata().unwrap().len());
    println!("{resident} bytes are resident of {stored} stored");
    assert!(resident as f64 <= 1.15 * stored as f64, "{resident} bytes of {stored}");
}
