//! Whether a model fits into this machine's memory: one estimate, for what is not fetched yet.

use std::fs;
use std::path::{Path, PathBuf};

use crate::api::MemoryNeed;
use crate::config::ModelConfig;

/// Tokens of a long conversation. The cache grows with what is used, so the estimate is made for this and not for the longest
/// context that a model allows.
pub const CONTEXT: usize = 8192;

/// What the program, the driver and the allocator's cache take beside a model.
const FIXED: u64 = 256 << 20;

/// How a device computes, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Bytes of a number that is computed, or kept for later tokens. Weights stay as they are stored.
    pub element: u64,
    /// Prompt tokens that are computed at once.
    pub chunk: usize,
}

impl Target {
    pub const CPU: Self = Self { element: 4, chunk: 128 };
    pub const GPU: Self = Self { element: 2, chunk: 2048 };
}

/// Memory of this machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What a model could have if nothing else ran.
    pub most: u64,
    /// What it could have at this moment.
    pub now: u64,
}

impl Room {
    /// Where a device has less for itself than the machine has: Metal's recommended working set, a graphics card's own memory.
    #[must_use]
    pub fn within(self, device: Option<u64>) -> Self {
        let device = device.unwrap_or(u64::MAX);
        Self { most: self.most.min(device), now: self.now.min(device) }
    }
}

/// What a model of this shape needs.
///
/// * `weights`: bytes of its weight files.
/// * `context`: tokens; `None`: [`CONTEXT`], or the model's own where that is shorter.
pub fn need(config: &ModelConfig, weights: u64, target: Target, context: Option<usize>, room: Room) -> MemoryNeed {
    let context = context.unwrap_or(CONTEXT).min(config.context_capacity());
    let product = |factors: &[usize]| factors.iter().fold(target.element, |all, f| all.saturating_mul(*f as u64));
    let kv = product(&[2, config.num_layers, config.num_kv_heads, config.head_dim, context]);
    // One layer's intermediate results, of which MLX holds those of about two layers at once; then one row of scores of all tokens.
    let layer = product(&[target.chunk, 4 * config.hidden_size + 3 * config.intermediate_size]);
    let workspace = [layer, layer, product(&[config.vocab_size, 2])].iter().fold(FIXED, |a, b| a.saturating_add(*b));
    let all = weights.saturating_add(kv).saturating_add(workspace);
    MemoryNeed { weights, kv, context, workspace, headroom: room.now, fits: all <= room.now }
}

/// All terms together, in bytes.
pub fn total(need: &MemoryNeed) -> u64 {
    need.weights.saturating_add(need.kv).saturating_add(need.workspace)
}

/// Memory of this machine now; `None` where the system does not say.
pub fn room() -> Option<Room> {
    if cfg!(target_os = "macos") { macos() } else { linux(Path::new("/proc"), Path::new("/sys/fs/cgroup")) }
}

/// What Activity Monitor calls free and cached. Its tools are asked, since the calls below them are not reachable in safe Rust.
fn macos() -> Option<Room> {
    let ask = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).stdin(std::process::Stdio::null()).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let most = ask("/usr/sbin/sysctl", &["-n", "hw.memsize"])?.trim().parse().ok()?;
    Some(Room { most, now: vm_stat(&ask("/usr/bin/vm_stat", &[])?)?.min(most) })
}

/// Free bytes by the text that `vm_stat` prints.
fn vm_stat(text: &str) -> Option<u64> {
    let size: u64 = text.split_once("page size of ")?.1.split(' ').next()?.parse().ok()?;
    let pages = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches('.').parse::<u64>().ok()
    };
    let pages = pages("Pages free")? + pages("File-backed pages")? + pages("Pages purgeable").unwrap_or(0);
    Some(pages * size)
}

/// What the kernel says is available, or what the control groups above this process leave of it.
fn linux(proc: &Path, cgroups: &Path) -> Option<Room> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    let mut room = Room { most: field("MemTotal")?, now: field("MemAvailable")? };
    for (limit, used) in limits(&fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default(), cgroups) {
        room.most = room.most.min(limit);
        room.now = room.now.min(limit.saturating_sub(used));
    }
    Some(room)
}

/// Limit and use of every control group that this process is in.
fn limits(own: &str, root: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, limit, used, cache) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max", "memory.current", "file")
        } else if controllers.split(',').any(|c| c == "memory") {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
        } else {
            continue;
        };
        // In a container the path may be the host's, of which only the end of it, or nothing, is visible.
        let path = Path::new(path.trim_start_matches('/'));
        let groups = path.ancestors().map(|p| base.join(p)).collect::<Vec<PathBuf>>();
        found.extend(groups.iter().filter_map(|group| {
            let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            // Cached files are counted as used, and given up when somebody needs the memory.
            let cached = stat.lines().find_map(|l| l.strip_prefix(cache)?.strip_prefix(' ')?.parse::<u64>().ok()).unwrap_or(0);
            Some((number(limit)?, number(used)?.saturating_sub(cached)))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GB: u64 = 1_000_000_000;

    fn config(change: impl FnOnce(&mut serde_json::Value)) -> ModelConfig {
        let mut config = json!({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
            "max_position_embeddings": 40960, "quantization": { "group_size": 64, "bits": 4 },
        });
        change(&mut config);
        ModelConfig::parse(&config).unwrap()
    }

    #[test]
    fn the_terms_are_what_the_shape_says() {
        let room = Room { most: 16 * GB, now: 8 * GB };
        let need = need(&config(|_| {}), 4_600_000_000, Target::GPU, None, room);
        // 36 layers x 2 x 8 heads x 128 x 2 bytes = 147,456 bytes a token.
        assert_eq!((need.weights, need.kv, need.context), (4_600_000_000, 147_456 * 8192, 8192));
        assert!(need.workspace > FIXED && need.workspace < GB, "{}", need.workspace);
        assert_eq!((need.headroom, need.fits), (8 * GB, true));
        assert!(total(&need) > 5_800_000_000 && total(&need) < 7_000_000_000, "{}", total(&need));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let config = config(|_| {});
        let fits = |now| need(&config, 4 * GB, Target::GPU, None, Room { most: 16 * GB, now }).fits;
        let exactly = total(&need(&config, 4 * GB, Target::GPU, None, Room { most: 0, now: 0 }));
        assert!(fits(exactly) && !fits(exactly - 1));
        // A file as large as a number can say does not overflow.
        assert!(!need(&config, u64::MAX, Target::CPU, None, Room { most: GB, now: GB }).fits);
    }

    #[test]
    fn the_cpu_computes_in_f32_weights_stay_as_stored_and_the_context_has_an_end() {
        let room = Room { most: GB, now: GB };
        let plain = config(|c| {
            c.as_object_mut().unwrap().remove("quantization");
            c["max_position_embeddings"] = json!(2048);
        });
        let cpu = need(&plain, GB, Target::CPU, None, room);
        assert_eq!((cpu.weights, cpu.context, cpu.kv), (GB, 2048, 2 * 147_456 * 2048));
        // Attention goes over the keys piece by piece: a longer context costs nothing but its cache.
        let longer = need(&config(|_| {}), GB, Target::CPU, Some(32_000), room);
        let shorter = need(&config(|_| {}), GB, Target::CPU, Some(1000), room);
        assert_eq!(longer.workspace, shorter.workspace);
        let gpu = need(&plain, GB, Target::GPU, Some(100), room);
        assert_eq!((gpu.weights, gpu.context, gpu.kv), (GB, 100, 147_456 * 100));
        assert_eq!(need(&config(|_| {}), GB, Target::CPU, None, room).weights, GB);
    }

    #[test]
    fn activity_monitors_free_and_cached() {
        let text = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:                               100.\n\
                    Pages active:                            5000.\nPages speculative:                         20.\n\
                    Pages purgeable:                            7.\n\"Translation faults\":                   99999.\n\
                    File-backed pages:                        300.\n";
        assert_eq!(vm_stat(text), Some(407 * 16384));
        assert_eq!(vm_stat("Mach Virtual Memory Statistics: (page size of many bytes)"), None);
        assert_eq!(vm_stat(""), None);
    }

    #[test]
    fn control_groups_count() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let room = || linux(&folder.path().join("proc"), &folder.path().join("cg"));
        assert_eq!(room(), None);
        write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:    9000 kB\n");
        assert_eq!(room(), Some(Room { most: 16000 * 1024, now: 9000 * 1024 }));
        // The second version: the inner group has no limit, the outer one does.
        write("proc/self/cgroup", "0::/outer/inner\n");
        write("cg/outer/inner/memory.max", "max\n");
        write("cg/outer/inner/memory.current", "5\n");
        write("cg/outer/memory.max", "8192000\n");
        write("cg/outer/memory.current", "6192000\n");
        write("cg/outer/memory.stat", "anon 5\nfile 1000000\nfile_mapped 7\n");
        assert_eq!(room(), Some(Room { most: 8_192_000, now: 3_000_000 }));
        // The first version, seen from inside a container: only the root is there.
        write("proc/self/cgroup", "5:cpu,memory:/docker/abc\n1:name=systemd:/x\n");
        write("cg/memory/memory.limit_in_bytes", "4000000\n");
        write("cg/memory/memory.usage_in_bytes", "1000000\n");
        write("cg/memory/memory.stat", "cache 1\ntotal_cache 500000\n");
        assert_eq!(room(), Some(Room { most: 4_000_000, now: 3_500_000 }));
    }

    #[test]
    fn this_machine_says_something() {
        let room = room().unwrap();
        assert!(room.now > 0 && room.now <= room.most, "{room:?}");
    }
}
