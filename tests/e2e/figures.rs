//! Figures of the app, not judged: `scripts/bench-app`.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::app::{App, free_port};
use crate::desk::Desk;
use crate::http::request;
use crate::page::Page;
use crate::screen::{close, focus, key, window, windows, write};
use crate::tray::TrayHost;
use crate::wait::{ANSWER, SOON, until, until_true};

const STARTS: usize = 7;
/// Memory is read when it has not changed for this long.
const SETTLED: Duration = Duration::from_secs(3);

/// Kilobytes of `/proc/PID/smaps_rollup`.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    rss: u64,
    /// Shared pages counted by their share.
    pss: u64,
    /// What nobody else has.
    private: u64,
}

fn memory(pid: i32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |key: &str| -> u64 {
        let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        lines.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
    };
    Some(Memory { rss: of("Rss"), pss: of("Pss"), private: of("Private_Clean") + of("Private_Dirty") })
}

/// PSS of the app itself and of WebKit's processes.
fn tree(desk: &Desk, app: &App) -> (u64, u64) {
    let own = memory(app.pid().try_into().unwrap()).unwrap_or_default().pss;
    let web = desk.processes().into_iter().filter(|process| process.name.starts_with("WebKit"));
    (own, web.filter_map(|process| memory(process.pid)).map(|memory| memory.pss).sum())
}

/// The same once it rests.
fn settled(desk: &Desk, app: &App) -> (u64, u64) {
    let mut last = (tree(desk, app), Instant::now());
    until("memory rests", ANSWER, || {
        let now = tree(desk, app);
        if (now.0 + now.1).abs_diff(last.0.0 + last.0.1) > 256 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > SETTLED).then_some(now)
    })
}

fn row(what: &str, value: impl std::fmt::Display) {
    println!("| {what} | {value} |");
}

fn megabytes(kilobytes: u64) -> String {
    format!("{:.1} MB", kilobytes as f64 * 1024.0 / 1e6)
}

fn memory_row(what: &str, (app, web): (u64, u64)) {
    row(what, format!("{} (app {}, WebKit {})", megabytes(app + web), megabytes(app), megabytes(web)));
}

fn median(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    format!("{:.0} ms ({low:.0} to {high:.0}, {} starts)", values[values.len() / 2], values.len())
}

#[test]
#[ignore = "prints figures: scripts/bench-app"]
fn figures() {
    println!("\n| figure | value |\n|---|---|");
    starts();
    resting();
    chatting();
    serving();
}

/// From before the program is started until its window is there, and until the page has painted its first text.
fn starts() {
    let (mut mapped, mut painted) = (Vec::new(), Vec::new());
    for number in 0..STARTS {
        let desk = Desk::new(&format!("start-{number}"));
        let begin = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0);
        let mut app = App::start(&desk, &[]);
        window();
        mapped.push(begin.0.elapsed().as_secs_f64() * 1000.0);
        let page = Page::open(&desk, &mut app);
        let script = "const [p] = performance.getEntriesByName('first-contentful-paint'); return p ? performance.timeOrigin + p.startTime : null";
        let at = until("the page says when it painted", SOON, || page.eval(script, &[]).as_f64());
        painted.push(at - begin.1);
        drop(page);
        app.quit(&desk);
    }
    row("exec to a mapped window", median(mapped));
    row("exec to the page's first contentful paint", median(painted));
}

fn resting() {
    for (what, release) in [("hidden, its page released", "500"), ("hidden, its page kept", "3600000")] {
        let desk = Desk::new(&format!("hidden-{release}"));
        let tray = TrayHost::start(&desk);
        let app = App::start_with(&desk, &[], &[("RMLX_TEST_RELEASE_MS", release)]);
        tray.wait_for_item();
        window();
        let shown = settled(&desk, &app);
        if release == "500" {
            memory_row("PSS of the process tree, window open, no model", shown);
        }
        close(&window());
        until_true("the window is hidden", SOON, || windows().is_empty());
        if release == "500" {
            until_true("its page is released", SOON, || desk.count("WebKitWebProcess") == 0);
        }
        memory_row(&format!("PSS, {what}"), settled(&desk, &app));
        app.quit(&desk);
    }
}

/// The highest while the starter model answers.
fn chatting() {
    let desk = Desk::new("chatting");
    desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 200\n");
    let mut tray = TrayHost::start(&desk);
    let app = App::start(&desk, &[]);
    tray.wait_for_item();
    focus(&window());
    settled(&desk, &app);
    write("Write a long story about the sea.");
    key("Return");
    tray.wait_for_state("busy", ANSWER);
    let mut highest = (0, 0);
    until_true("the answer is complete", ANSWER, || {
        let now = tree(&desk, &app);
        if now.0 + now.1 > highest.0 + highest.1 {
            highest = now;
        }
        tray.state() == Some("idle")
    });
    memory_row("PSS, the starter model answering in the window", highest);
    app.quit(&desk);
}

struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(desk: &Desk, port: u16) -> Serve {
    let mut command: Command = desk.rmlx(&["serve", "--port", &port.to_string()]);
    Serve(command.stdout(desk.log("serve")).stderr(desk.log("serve")).spawn().expect("rmlx serve starts"))
}

/// One try; refused connections cost no time.
fn healthy(port: u16) -> io::Result<bool> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    Ok(request(port, "GET", "/health", None).is_some_and(|(status, _)| status == 200))
}

fn serving() {
    let desk = Desk::new("serve");
    let mut times = Vec::new();
    for _ in 0..2 * STARTS {
        let port = free_port();
        let begin = Instant::now();
        let server = serve(&desk, port);
        while !healthy(port).unwrap_or(false) {
            assert!(begin.elapsed() < SOON, "rmlx serve does not answer");
            thread::sleep(Duration::from_micros(200));
        }
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
        drop(server);
    }
    row("`rmlx serve`: exec to the first 200 of /health", median(times));
    let port = free_port();
    let server = serve(&desk, port);
    until_true("it serves", SOON, || healthy(port).unwrap_or(false));
    let pid = server.0.id().try_into().unwrap();
    let mut last = (0, Instant::now());
    let rests = until("memory rests", ANSWER, || {
        let now = memory(pid)?;
        if now.pss.abs_diff(last.0) > 64 {
            last = (now.pss, Instant::now());
        }
        (last.1.elapsed() > SETTLED).then_some(now)
    });
    let Memory { rss, pss, private } = rests;
    row("`rmlx serve`, idle", format!("{} private, {} PSS, {} RSS", megabytes(private), megabytes(pss), megabytes(rss)));
}
