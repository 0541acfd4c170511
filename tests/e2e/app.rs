//! The running app.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::desk::{Desk, variable};
use crate::wait::{SOON, until, until_true};

pub struct App {
    child: Child,
    /// Where WebKit's remote inspector listens, which WebDriver speaks through.
    pub inspector: u16,
    /// Where the screen goes when the test fails.
    picture: PathBuf,
}

pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl App {
    /// Starts it, and returns at once.
    pub fn start(desk: &Desk, arguments: &[&str]) -> Self {
        Self::start_with(desk, arguments, &[])
    }

    pub fn start_with(desk: &Desk, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let inspector = free_port();
        let mut command = desk.command(variable("RMLX_E2E_APP"));
        command
            .args(arguments)
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .env("WEBKIT_INSPECTOR_SERVER", format!("127.0.0.1:{inspector}"))
            .envs(environment.iter().copied())
            .stdout(desk.log("app"))
            .stderr(desk.log("app"));
        Self { child: command.spawn().expect("the app starts"), inspector, picture: desk.dir.join("screen.png") }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// How it ended, once it has by itself.
    pub fn end(&mut self) -> ExitStatus {
        until("the app ends", SOON, || self.ended())
    }

    /// As the system does when a session ends.
    pub fn quit(mut self, desk: &Desk) {
        self.signal(Signal::TERM);
        assert_eq!(self.end().code(), Some(0), "quits cleanly");
        all_gone(desk);
    }

    pub fn kill(mut self, desk: &Desk) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        all_gone(desk);
    }
}

/// WebKit's processes end with the app.
pub fn all_gone(desk: &Desk) {
    until_true("the app's helpers end with it", SOON, || {
        !desk.processes().iter().any(|p| p.name.starts_with("WebKit") && p.name != "WebKitWebDriver")
    });
}

impl Drop for App {
    fn drop(&mut self) {
        if thread::panicking() {
            crate::screen::keep(&self.picture);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
