//! `rmlx logits`: the model's raw output, to compare with another program's.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use rmlx_engine::api;
use rmlx_engine::engine::Engine;
use rmlx_engine::error::Error;
use serde_json::json;

use crate::args::Global;
use crate::failure::Result;
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
    let prompt = args.prompt.read()?;
    let engine = Engine::start(global.options())?;
    let spinner = Spinner::new("computing logits");
    let logits = engine.logits(&args.model, prompt)?;
    write(&args.out, &logits).map_err(|e| Error::io(&args.out, e))?;
    drop(spinner);
    out::complain(&format!("{}: [{}, {}]", args.out.display(), logits.tokens.len(), logits.vocab));
    Ok(())
}

/// Beside the target first, so that a half-written file never bears its name.
fn write(path: &Path, logits: &api::Logits) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let written = File::create(&half).and_then(|file| {
        let mut file = BufWriter::new(file);
        encode(&mut file, logits)?;
        file.into_inner()?.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&half, path));
    if done.is_err() {
        let _ = fs::remove_file(&half);
    }
    done
}

fn encode(file: &mut impl Write, logits: &api::Logits) -> io::Result<()> {
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
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no half file stays");
        assert!(write(&folder.path().join("no/folder"), &logits).is_err());
    }
}
