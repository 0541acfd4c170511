//! The place for icons that `tray_host.py` plays.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::desk::{Desk, variable};
use crate::screen::pixels;
use crate::wait::{SOON, until};

pub struct TrayHost {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
}

#[derive(Debug, Clone)]
pub struct Item {
    pub label: String,
    pub enabled: bool,
    /// `None`: not a switch.
    pub checked: Option<bool>,
}

impl TrayHost {
    pub fn start(desk: &Desk) -> Self {
        // Debian's own: another Python would not have its bindings.
        let mut command = desk.command("/usr/bin/python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tray_host.py"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(desk.log("tray"));
        let mut child = command.spawn().expect("the tray host starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, output) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = send.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        let input = child.stdin.take().unwrap();
        let host = Self { child, input, output };
        host.hear("ready");
        host
    }

    fn hear(&self, key: &str) -> Value {
        loop {
            let said = self.output.recv_timeout(SOON).unwrap_or_else(|_| panic!("the tray host did not say: {key}"));
            if let Some(error) = said.get("error") {
                panic!("the tray host: {error}");
            }
            if let Some(value) = said.get(key) {
                return value.clone();
            }
        }
    }

    fn ask(&mut self, command: &str, key: &str) -> Value {
        writeln!(self.input, "{command}").unwrap();
        self.hear(key)
    }

    /// Waits until the app has put its icon here.
    pub fn wait_for_item(&self) {
        self.hear("item");
    }

    pub fn menu(&mut self) -> Vec<Item> {
        let menu = self.ask("menu", "menu");
        let item = |item: &Value| Item {
            label: item["label"].as_str().unwrap().into(),
            enabled: item["enabled"].as_bool().unwrap(),
            checked: item["checked"].as_bool(),
        };
        menu.as_array().unwrap().iter().map(item).collect()
    }

    /// The item whose label begins so.
    pub fn item(&mut self, begin: &str) -> Item {
        let menu = self.menu();
        menu.iter().find(|item| item.label.starts_with(begin)).cloned().unwrap_or_else(|| panic!("no {begin} in {menu:?}"))
    }

    pub fn click(&mut self, begin: &str) {
        self.ask(&format!("click {begin}"), "clicked");
    }

    /// Gives the place up, as a panel that ends does.
    pub fn leave(&mut self) {
        self.ask("leave", "left");
    }

    /// Which of the app's pictures is shown; `None` while it is being changed.
    pub fn state(&mut self) -> Option<&'static str> {
        let shown = pixels(Path::new(self.ask("icon", "icon")["name"].as_str().unwrap()))?;
        let pictures = Path::new(&variable("RMLX_E2E_ROOT")).join("icons/tray");
        let picture = |state: &str| pixels(&pictures.join(format!("color-{state}.png"))).expect("the app's picture");
        ["idle", "loading", "busy", "error"].into_iter().find(|state| picture(state) == shown)
    }

    pub fn wait_for_state(&mut self, state: &str, limit: Duration) {
        until(&format!("the icon for {state}"), limit, || (self.state() == Some(state)).then_some(()));
    }
}

impl Drop for TrayHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
