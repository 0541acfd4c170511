//! What `rmlx doctor` finds: facts that were looked up, and what to do where one is wrong.

use std::fs;
use std::path::Path;

use crate::api::{Check, CheckState, Device, Options};
use crate::attach::{self, Found};

use crate::hub::{self, Snapshot};
use crate::paths;

/// The MLX that this program was compiled against.
pub const MLX_VERSION: &str = mlx::BUILT_AGAINST;

pub fn checks(options: &Options) -> Vec<Check> {
    let gpu = options.device != Device::Cpu && mlx::gpu_available();
    let device = if gpu { mlx::Device::Gpu } else { mlx::Device::Cpu };
    vec![mlx_library(), compute(device), matrix_library(device), claim(device), folder("state folder", &paths::home()), starter()]
}

fn check(name: &str, state: CheckState, detail: impl Into<String>, fix: Option<&str>) -> Check {
    Check { name: name.into(), state, detail: detail.into(), fix: fix.map(Into::into) }
}

fn mlx_library() -> Check {
    let found = mlx::version();
    if found == MLX_VERSION {
        check("MLX", CheckState::Ok, found, None)
    } else {
        let detail = format!("{found} is loaded, but this program was built against {MLX_VERSION}");
        check("MLX", CheckState::Fail, detail, Some("run scripts/setup, and unset LD_LIBRARY_PATH or DYLD_LIBRARY_PATH"))
    }
}

fn compute(device: mlx::Device) -> Check {
    match device {
        mlx::Device::Gpu => {
            let name = mlx::device_name(device).unwrap_or_else(|| "a GPU whose driver gives no name".into());
            let memory = mlx::gpu_memory().map_or(String::new(), |b| format!(", {:.1} GB", b as f64 / 1e9));
            check("device", CheckState::Ok, format!("gpu: {name}{memory}"), None)
        }
        mlx::Device::Cpu if mlx::gpu_available() => check("device", CheckState::Ok, "cpu (a GPU is there: --device gpu)", None),
        mlx::Device::Cpu => check("device", CheckState::Ok, "cpu", None),
    }
}

/// Whether MLX's CPU backend multiplies with OpenBLAS: eight times faster than the reference library in MLX's wheel.
fn matrix_library(device: mlx::Device) -> Check {
    if device == mlx::Device::Gpu || cfg!(target_os = "macos") {
        return check("matrix library", CheckState::Ok, "the platform's own", None);
    }
    match mlx::cpu_matrix_library() {
        Some(name) => check("matrix library", CheckState::Ok, name, None),
        None => check(
            "matrix library",
            CheckState::Warn,
            "the reference BLAS of MLX's wheel, some eight times slower than OpenBLAS",
            Some("run scripts/setup"),
        ),
    }
}

fn claim(device: mlx::Device) -> Check {
    let state = |state, detail: String, fix| check("claim", state, detail, fix);
    match attach::find() {
        Ok(Found::Nobody) => state(CheckState::Ok, "free".into(), None),
        Ok(Found::Engine(client)) if client.pid() == std::process::id() => {
            state(CheckState::Ok, "held by this process, which answers for the others".into(), None)
        }
        Ok(Found::Engine(client)) => {
            state(CheckState::Ok, format!("held by process {}, which answers for the others", client.pid()), None)
        }
        Ok(Found::Closed { pid, why: None }) if device == mlx::Device::Cpu => {
            state(CheckState::Ok, format!("held by process {pid}; not needed on the CPU"), None)
        }
        Ok(Found::Closed { pid, why }) => {
            let why = why.map_or_else(String::new, |why| format!(", which cannot be used: {why}"));
            let fix = Some("end that process, or use --device cpu");
            state(CheckState::Warn, format!("held by process {pid}{why}"), fix)
        }
        Err(e) => state(CheckState::Fail, e.to_string(), None),
    }
}

fn folder(name: &str, path: &Path) -> Check {
    // Asked by doing: permissions, full disks and read-only mounts all show.
    let probe = path.join(format!(".probe-{}", std::process::id()));
    let written = fs::create_dir_all(path).and_then(|()| fs::write(&probe, b"probe"));
    let _ = fs::remove_file(&probe);
    match written {
        Ok(()) => check(name, CheckState::Ok, path.display().to_string(), None),
        Err(e) => {
            let detail = format!("{} cannot be written: {e}", path.display());
            check(name, CheckState::Fail, detail, Some("make it writable, or set RMLX_HOME to another folder"))
        }
    }
}

fn starter() -> Check {
    match hub::resolve("starter").and_then(|folder| Snapshot::open(&folder)) {
        Ok(s) => check("starter model", CheckState::Ok, s.folder().display().to_string(), None),
        Err(e) => check("starter model", CheckState::Warn, e.to_string(), Some("make run brings it")),
    }
}
