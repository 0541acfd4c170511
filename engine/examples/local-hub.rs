//! A hub on this machine, for trying downloads without a network: `local-hub FOLDER [--port N] [--pace BYTES] [--redirect BYTES]
//! [--gated]`. FOLDER has `ORG/NAME/files`. It prints its address; HF_ENDPOINT takes that.

#[path = "../tests/support/hub/mod.rs"]
mod hub;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;

#[derive(Parser)]
struct Args {
    /// Has a folder ORG/NAME for each repository.
    folder: PathBuf,
    /// 0: any that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Bytes a second that each connection gets; 0: all there is.
    #[arg(long, default_value_t = 0)]
    pace: u64,
    /// Files of so many bytes and more come from another address.
    #[arg(long)]
    redirect: Option<u64>,
    /// Every repository is gated; the token hf_known may read it, hf_stranger not.
    #[arg(long)]
    gated: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let local = hub::Hub::start_at(args.port)?;
    for org in fs::read_dir(&args.folder)? {
        let org = org?;
        for repo in fs::read_dir(org.path())? {
            let repo = repo?;
            let name = format!("{}/{}", org.file_name().to_string_lossy(), repo.file_name().to_string_lossy());
            let mut repository = hub::Repository::from_folder(&name, &repo.path())?;
            repository.gated = args.gated;
            eprintln!("{name} {} ({} files)", repository.commit, repository.files.len());
            local.add(repository);
        }
    }
    local.pace(args.pace);
    local.redirect_from(args.redirect.unwrap_or(u64::MAX));
    println!("{}", local.endpoint);
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
