use super::*;

/// The starter model's file, where set-up has brought it.
fn starter() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("HOME")?).join(".cache/rmlx-build/starter/SmolLM2-135M-Instruct.Q4_1.gguf");
    path.is_file().then_some(path)
}

#[test]
#[ignore]
fn make_starter() {
    let path = starter().unwrap();
    let out = path.parent().unwrap().join(default_name(&path));
    let mut p = |_, _| ControlFlow::Continue(());
    println!("{:?}", gguf(&path, &ImportOptions { out, force: true }, &mut p).unwrap());
}
