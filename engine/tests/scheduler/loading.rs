//! Models that come and go beside answers.

use super::*;

#[test]
fn a_load_ends_with_loaded_and_nothing_else() {
    let worker = loading(|_, progress| {
        tell(progress, |_| {})?;
        Ok(Fake::new(echo))
    });
    for _ in 0..2 {
        let events: Vec<Event> = load_model(&worker, "qwen3").collect();
        assert_eq!(events.last(), Some(&Event::Loaded), "{events:?}");
        assert_eq!(events.iter().filter(|e| **e == Event::Loaded).count(), 1);
    }
    assert_eq!(status(&worker).resident, ["qwen3"]);
    // And of the real engine.
    let engine = engine(None);
    let events: Vec<Event> = engine.load(&name_of(&oracle("llama"))).unwrap().collect();
    assert_eq!(events.last(), Some(&Event::Loaded), "{events:?}");
}

#[test]
fn a_load_is_cancelled_between_tensors() {
    for drop_it in [true, false] {
        let gate = Gate::default();
        let at = gate.clone();
        let worker = loading(move |_, progress| {
            tell(progress, |_| at.pass())?;
            Ok(Fake::new(echo))
        });
        let reader = load_model(&worker, "qwen3");
        gate.allow(3);
        gate.arrives(4);
        if drop_it {
            drop(reader);
            gate.open();
        } else {
            reader.cancel();
            gate.open();
            assert_eq!(Answer::read(reader).code(), "cancelled");
        }
        assert_eq!(status(&worker).resident, [""; 0]);
        assert_eq!(gate.arrived(), 4, "it went on");
        assert_eq!(Answer::read(ask(&worker, "qwen3", vec![3], 4)).ids, [3; 4]);
        assert_eq!(status(&worker).resident, ["qwen3"]);
    }
}

/// Answers of one model go on while another loads, a step for each tensor.
#[test]
fn answers_go_on_while_another_model_loads() {
    let (steps, marks) = (log(), log());
    let (seen, marked) = (steps.clone(), marks.clone());
    let worker = loading(move |name, progress| {
        if name == "llama" {
            let (seen, marked) = (seen.clone(), marked.clone());
            tell(progress, move |_| marked.lock().unwrap().push(seen.lock().unwrap().len()))?;
        }
        let seen = seen.clone();
        Ok(Fake { layers: 1, ..Fake::new(echo) }.visited(move |v| {
            seen.lock().unwrap().push(v.position);
            Ok(())
        }))
    });
    let mut running = ask(&worker, "qwen3", vec![1], 500);
    begun(&mut running);
    let load = load_model(&worker, "llama");
    assert!(Answer::read(load).loaded);
    let marks = entries(&marks);
    assert!(marks.windows(2).all(|w| w[1] == w[0] + 1), "a tensor without a step: {marks:?}");
    // Its own model is no longer the resident one; the answer ends as it would have.
    assert_eq!(status(&worker).resident, ["llama"]);
    let rest = Answer::read(running);
    assert_eq!((rest.finished().reason, rest.finished().usage.completion_tokens), (FinishReason::Length, 500));
    assert_eq!(entries(&steps).len(), 500);
}

fn unload(worker: &Handle) -> Result<()> {
    let (reply, answer) = mpsc::channel();
    worker.send(Command::Unload(reply)).unwrap();
    answer.recv_timeout(PATIENCE).expect("an answer")
}

#[test]
fn a_model_is_unloaded_unless_it_answers() {
    let gate = Gate::default();
    let worker = gated(&gate);
    // Nothing is there to unload.
    unload(&worker).unwrap();
    let answer = ask(&worker, "qwen3", vec![1], 4);
    gate.allow(2);
    gate.arrives(3);
    let (reply, refused) = mpsc::channel();
    worker.send(Command::Unload(reply)).unwrap();
    gate.allow(1);
    let refused = refused.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(refused.code(), "invalid_request", "{refused}");
    gate.open();
    // The answer lost nothing by it.
    assert_eq!(Answer::read(answer).ids, [1; 4]);
    assert_eq!(worker.activity().model.as_deref(), Some("qwen3"));
    unload(&worker).unwrap();
    assert_eq!(status(&worker).resident, [""; 0]);
    assert_eq!(worker.activity().model, None);
    // It comes back when it is wanted.
    assert_eq!(Answer::read(ask(&worker, "qwen3", vec![2], 3)).ids, [2; 3]);
}

#[test]
fn a_load_is_not_undone_half_way() {
    let gate = Gate::default();
    let at = gate.clone();
    let worker = loading(move |_, progress| {
        tell(progress, |i| {
            if i == 50 {
                at.pass();
            }
        })?;
        Ok(Fake::new(echo))
    });
    let load = load_model(&worker, "qwen3");
    gate.arrives(1);
    let (reply, refused) = mpsc::channel();
    worker.send(Command::Unload(reply)).unwrap();
    gate.open();
    assert_eq!(refused.recv_timeout(PATIENCE).unwrap().unwrap_err().code(), "invalid_request");
    assert!(matches!(load.last(), Some(Event::Loaded)));
    assert_eq!(status(&worker).resident, ["qwen3"]);
}

/// With real models: the answer is the reference's although its model went in the middle.
#[test]
fn an_answer_outlives_the_residence_of_its_model() {
    let folder = oracle("qwen3");
    let engine = engine(None);
    let prompt = integers(&folder.join("expected.safetensors"), "input_ids");
    let expected = ids(&json(&folder.join("expected.json"))["greedy_ids"]);
    let reader = engine.generate(&name_of(&folder), Request { max_tokens: Some(32), ..request(prompt) }).unwrap();
    let load = engine.load(&name_of(&oracle("llama"))).unwrap();
    assert!(Answer::read(load).loaded);
    assert_eq!(Answer::read(reader).ids, expected);
}

/// Everything that is asked while a model loads is answered: the status at once, the rest after.
#[test]
fn all_that_is_asked_during_a_load_is_answered() {
    let gate = Gate::default();
    let at = gate.clone();
    let worker = loading(move |name, progress| {
        if name == "llama" {
            tell(progress, |_| at.pass())?;
        }
        Ok(Fake::new(echo))
    });
    let load = load_model(&worker, "llama");
    gate.arrives(1);
    let same = ask(&worker, "llama", vec![5], 3);
    let other = ask(&worker, "qwen3", vec![6], 3);
    let second_load = load_model(&worker, "qwen3");
    let (reply, logits) = mpsc::channel();
    worker.send(Command::Logits(wanted("qwen3"), vec![1, 2, 3], reply)).unwrap();
    let (reply, bench) = mpsc::channel();
    let plan = api::BenchPlan { contexts: vec![4], tokens: 3, prompt_chunk: None, runs: 1 };
    worker.send(Command::Bench(wanted("llama"), plan, reply)).unwrap();
    let (reply, during) = mpsc::channel();
    worker.send(Command::Status(reply)).unwrap();
    gate.allow(2);
    // Long before the load is over.
    let during = during.recv_timeout(PATIENCE).expect("a status during the load");
    assert_eq!((during.resident.len(), during.device.as_str(), during.dtype), (0, "cpu", None));
    assert!(gate.arrived() < 90);
    gate.open();
    assert!(Answer::read(load).loaded);
    assert_eq!(Answer::read(same).ids, [5; 3]);
    assert_eq!(Answer::read(other).ids, [6; 3]);
    assert!(Answer::read(second_load).loaded);
    let logits = logits.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!((logits.tokens.as_slice(), logits.data.len()), (&[1, 2, 3][..], 3 * VOCABULARY));
    assert_eq!(bench.recv_timeout(PATIENCE).unwrap().unwrap().rows.len(), 1);
    assert_eq!(status(&worker).resident, ["llama"]);
}

/// Whoever gave up while waiting for another load costs the resident model nothing.
#[test]
fn a_request_that_is_gone_does_not_load() {
    let (gate, loads) = (Gate::default(), log());
    let (at, seen) = (gate.clone(), loads.clone());
    let worker = loading(move |name, progress| {
        seen.lock().unwrap().push(name.to_string());
        tell(progress, |_| at.pass())?;
        Ok(Fake::new(echo))
    });
    let load = load_model(&worker, "llama");
    gate.arrives(1);
    let gone = ask(&worker, "qwen3", vec![5], 3);
    let told = load_model(&worker, "qwen2");
    drop(gone);
    told.cancel();
    gate.open();
    assert!(Answer::read(load).loaded);
    assert_eq!(Answer::read(told).code(), "cancelled");
    assert_eq!(status(&worker).resident, ["llama"]);
    assert_eq!(entries(&loads), ["llama"]);
}

/// A snapshot that cannot be run is refused before the resident model goes.
#[test]
fn what_cannot_be_run_leaves_the_resident_model() {
    let folder = tempfile::tempdir().unwrap();
    copy_without_weights(&oracle("qwen3"), folder.path());
    std::fs::copy(oracle("qwen3").join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let mut config = json(&folder.path().join("config.json"));
    config["architectures"] = serde_json::json!(["MambaForCausalLM"]);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let engine = engine(None);
    assert!(Answer::read(engine.load(&name_of(&oracle("llama"))).unwrap()).loaded);
    let failed = Answer::read(engine.load(&name_of(folder.path())).unwrap());
    assert_eq!(failed.code(), "unsupported_model");
    assert_eq!(engine.status().resident, [name_of(&oracle("llama"))]);

    // One whose weights are broken is noticed later: then there is none, and the next load works.
    std::fs::copy(oracle("qwen3").join("config.json"), folder.path().join("config.json")).unwrap();
    let mut tensors = read(&oracle("qwen3").join("model.safetensors"));
    tensors.pop();
    write(&folder.path().join("model.safetensors"), &tensors);
    assert_eq!(Answer::read(engine.load(&name_of(folder.path())).unwrap()).code(), "bad_weights");
    assert_eq!(engine.status().resident, [""; 0]);
    assert!(Answer::read(engine.load(&name_of(&oracle("llama"))).unwrap()).loaded);
}

/// The claim on the GPU goes with the last user of a model, not with its place in the registry.
#[test]
fn the_claim_is_held_while_a_model_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claim");
    let held = || Claim::holder_at(&path).unwrap().is_some();
    let loader: Loader = Box::new(|name, snapshot, placement: Placement, _| {
        assert_eq!(placement.compute, rmlx_engine::nn::Compute::Mlx, "on a GPU matrices stay packed");
        if name == "broken" { Err(Error::Weights("broken".into())) } else { resident(name, snapshot, Fake::new(echo)) }
    });
    let slot = Slot::at(path.clone());
    let mut registry = Registry::with_loader(mlx::Device::Gpu, api::Dtype::Auto, loader).claiming(slot.clone());
    let snapshot = |name| Snapshot::open(&oracle(name)).unwrap();
    let mut quiet = |_, _| ControlFlow::Continue(());
    assert!(!held());
    let used = registry.load("qwen3", &snapshot("qwen3"), &mut quiet).unwrap();
    assert!(held());
    // An answer still uses the first while the second fails to load.
    assert!(registry.load("broken", &snapshot("llama"), &mut quiet).is_err());
    assert!(held());
    drop(used);
    assert!(!held());
    drop(registry.load("qwen3", &snapshot("qwen3"), &mut quiet).unwrap());
    assert!(held());
    drop(registry.load("llama", &snapshot("llama"), &mut quiet).unwrap());
    assert!(held(), "one model takes over from the other");
    registry.unload().unwrap();
    assert!(!held());
    // Whoever shares the engine holds it too.
    let sharing = slot.take().unwrap();
    drop(registry.load("qwen3", &snapshot("qwen3"), &mut quiet).unwrap());
    registry.unload().unwrap();
    assert!(held());
    drop(sharing);
    assert!(!held());
}
