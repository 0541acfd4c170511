//! `rmlx logits`: the model's raw output, to compare with another program's.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use rmlx_engine::api;
use rmlx_engine::engine::Engine;
use serde_json::json;

use crate::args::Global;
use crate::failure::Result;
use crate::files;
use crate::out;
use crate::progress::Spinner;
use crate::prompt::PromptArgs;

/// Write the logits after every token of a prompt to a safetensors file
#[derive(Debug, Args)]
pub struct Logits {
    /// A folder, a name in the Hugging Face cache, or `starter`
    model: String,
    #[command(flatten)]
    prompt: PromptArgs,
    /// The file to write: one tensor, `logits`, f32, [tokens, vocabulary]
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: Logits, global: &Global) -> Result<()> {
    files::check_writable(&args.out)?;
    let prompt = args.prompt.read()?;
    let engine = Engine::start(global.options())?;
    let spinner = Spinner::new("computing logits");
    let logits = engine.logits(&args.model, prompt)?;
    write(&args.out, &logits)?;
    drop(spinner);
    out::complain(&format!("{}: [{}, {}]", args.out.display(), logits.tokens.len(), logits.vocab));
    Ok(())
}

fn write(path: &Path, logits: &api::Logits) -> Result<()> {
    files::write(path, |file| encode(file, logits))
}

fn encode(file: &mut dyn Write, logits: &api::Logits) -> io::Result<()> {
    let shape = [logits.tokens.len(), logits.vocab];
    let header = json!({ "logits": { "dtype": "F32", "shape": shape, "data_offsets": [0, logits.data.len() * 4] } });
    let mut header = header.to_string();
    // The data begin at a multiple of 8.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    for x in &logits.data {
        file.write_all(&x.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::{Dtype, SafeTensors};

    use super::*;

    #[test]
    fn the_safetensors_crate_reads_what_we_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.safetensors");
        let logits = api::Logits { tokens: vec![5, 6], vocab: 3, data: vec![0.5, -1.0, f32::INFINITY, 3.0, 4.0, 5.0] };
        write(&path, &logits).unwrap();
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.names(), ["logits"]);
        let tensor = file.tensor("logits").unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::F32, &[2, 3][..]));
        let data: Vec<f32> = tensor.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(data, logits.data);
    }
}
