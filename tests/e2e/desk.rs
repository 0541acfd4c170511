//! One test's private desktop: folders, a session bus, the environment of every process, and the end of them all.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{env, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{SOON, until_true};

/// The model's name, which is that of its folder.
pub fn model() -> String {
    let folder = PathBuf::from(variable("RMLX_E2E_MODEL"));
    folder.file_name().expect("a model's folder").to_string_lossy().into_owned()
}

pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: scripts/e2e runs these tests"))
}

pub struct Desk {
    pub dir: PathBuf,
    bus: Option<Child>,
    address: String,
    /// The address of assistive technology's bus. It costs time, so only the test of it has it.
    accessibility: Option<String>,
}

/// A process of this desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub name: String,
}

impl Desk {
    /// With settings that keep answers short and always the same.
    pub fn new(name: &str) -> Self {
        let dir = Path::new(&variable("RMLX_E2E_DIR")).join(name);
        for folder in ["home/.config", "run", "rmlx/models", "tmp"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        fs::set_permissions(dir.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(variable("RMLX_E2E_MODEL"), dir.join("rmlx/models").join(model())).unwrap();
        let mut desk = Self { dir, bus: None, address: String::new(), accessibility: None };
        desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 24\n");
        desk.start_bus();
        desk
    }

    /// With the bus that assistive technology uses.
    pub fn accessible(name: &str) -> Self {
        let mut desk = Self::new(name);
        let mut ask = desk.command("dbus-send");
        ask.args(["--session", "--print-reply=literal", "--dest=org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus.GetAddress"]);
        let said = desk.run(ask);
        assert!(said.status.success(), "{said:?}");
        // Named to every process: the display remembers the bus of whoever had one there before.
        desk.accessibility = Some(String::from_utf8(said.stdout).unwrap().trim().into());
        desk
    }

    fn start_bus(&mut self) {
        let mut command = self.command("dbus-daemon");
        command
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdout(Stdio::piped())
            .stderr(self.log("bus"));
        let mut bus = command.spawn().expect("dbus-daemon starts");
        let mut lines = BufReader::new(bus.stdout.take().unwrap()).lines();
        self.address = lines.next().expect("the bus says its address").unwrap();
        self.bus = Some(bus);
    }

    /// Replaces the settings file.
    pub fn settings(&self, toml: &str) {
        fs::write(self.dir.join("rmlx/settings.toml"), toml).unwrap();
    }

    /// A file for what a process prints, shown when the test fails.
    pub fn log(&self, name: &str) -> File {
        File::options().create(true).append(true).open(self.dir.join(name).with_extension("log")).unwrap()
    }

    /// A program in this desk's environment, and no other.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null());
        for kept in ["PATH", "DISPLAY", "LD_LIBRARY_PATH", "RMLX_E2E_DIR"] {
            if let Some(value) = env::var_os(kept) {
                command.env(kept, value);
            }
        }
        let at = |folder: &str| self.dir.join(folder);
        command
            .env("HOME", at("home"))
            .env("XDG_RUNTIME_DIR", at("run"))
            .env("TMPDIR", at("tmp"))
            .env("RMLX_HOME", at("rmlx"))
            .env("RMLX_CLAIM", at("run/claim"))
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            // What a machine without a GPU and without a desktop's services needs.
            .env("GDK_BACKEND", "x11")
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .env("WEBKIT_DISABLE_COMPOSITING_MODE", "1")
            .env("WEBKIT_DISABLE_DMABUF_RENDERER", "1")
            .env("GSETTINGS_BACKEND", "memory")
            .env("GTK_USE_PORTAL", "0")
            .env("RUST_BACKTRACE", "1");
        match &self.accessibility {
            Some(address) => command.env("AT_SPI_BUS_ADDRESS", address),
            None => command.env("NO_AT_BRIDGE", "1"),
        };
        command
    }

    /// The `rmlx` command.
    pub fn rmlx(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(variable("RMLX_E2E_CLI"));
        command.args(arguments);
        command
    }

    pub fn run(&self, mut command: Command) -> Output {
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// Every process that was started in this desk, by whomever.
    pub fn processes(&self) -> Vec<Process> {
        let mark = format!("RMLX_HOME={}", self.dir.join("rmlx").display());
        let of = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()).then_some(())?;
            let name = fs::read_link(entry.path().join("exe")).ok()?.file_name()?.to_string_lossy().into_owned();
            Some(Process { pid, name })
        };
        fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
    }

    pub fn count(&self, name: &str) -> usize {
        self.processes().iter().filter(|process| process.name == name).count()
    }

    /// Ends everything of this desk.
    fn clear(&mut self) {
        let kill = |pid| {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        };
        if let Some(mut bus) = self.bus.take() {
            let _ = bus.kill();
            let _ = bus.wait();
        }
        until_true("every process of the test is gone", SOON, || {
            let left = self.processes();
            left.iter().for_each(|process| kill(process.pid));
            left.is_empty()
        });
    }

    /// Some log of the app has this text.
    pub fn logged(&self, text: &str) -> bool {
        let logs = fs::read_dir(self.dir.join("rmlx/logs")).into_iter().flatten().flatten();
        logs.filter_map(|log| fs::read_to_string(log.path()).ok()).any(|log| log.contains(text))
    }

    fn tell(&self) {
        eprintln!("---- {} ----", self.dir.display());
        let logs = fs::read_dir(self.dir.join("rmlx/logs")).into_iter().flatten().flatten();
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten().chain(logs);
        for path in files.map(|entry| entry.path()).filter(|path| path.is_file()) {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let lines: Vec<_> = text.lines().collect();
            eprintln!("-- {}", path.display());
            for line in &lines[lines.len().saturating_sub(40)..] {
                eprintln!("{line}");
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell();
        }
        self.clear();
    }
}
