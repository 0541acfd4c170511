//! Disks that are full: before, and in the middle.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rmlx_engine::api::PullPhase;
use rmlx_engine::hub::fetch::Tuning;

use crate::bench::{Bench, REPO, done, failed, find, repository, tuning};
use crate::killed::{Child, namespace};

static FREE: AtomicU64 = AtomicU64::new(0);

#[test]
fn too_little_room_is_said_with_both_numbers() {
    let bench = Bench::new();
    let total = {
        let other = Bench::new();
        done(&other.models(), REPO).total.unwrap()
    };
    let models = bench.models_with(Tuning { reserve: 1000, free: |_| Ok(FREE.load(Ordering::Relaxed)), ..tuning() }, None);
    FREE.store(total + 999, Ordering::Relaxed);
    let (code, message) = failed(&models, REPO);
    assert_eq!(code, "disk_full");
    assert!(message.contains(&(total + 1000).to_string()) && message.contains(&(total + 999).to_string()), "{message}");
    assert!(bench.hub.sent().is_empty(), "before a byte came");
    FREE.store(total + 1000, Ordering::Relaxed);
    done(&models, REPO);
    // What is here already needs no room.
    FREE.store(0, Ordering::Relaxed);
    done(&models, REPO);
}

/// Past what the test harness keeps to itself of tests that pass.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// In a file system of 600 KB, which the check of free space does not know of: another program may take the room at any time.
#[test]
fn a_disk_that_fills_up_is_a_clean_stop_that_goes_on() {
    if !can_mount() {
        return skipped("this machine lets nobody mount a small disk");
    }
    let bench = Bench::new();
    // The file system is seen by the child alone, so that all of it happens there.
    let child = Child { small_disk: Some(600 << 10), ..Child::of(&bench) };
    let told = fetch_in_child(&child);
    let lines: Vec<&str> = told.lines().filter(|l| l.starts_with("told:")).collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].contains("Failed disk_full") && lines[0].contains("bytes are needed"), "{told}");
    assert!(lines[1].contains("Done"), "{told}");
    let sent: u64 = bench.hub.sent().values().sum();
    let total: u64 =
        repository(10).files.iter().filter(|f| !f.name.contains('/') && !f.name.ends_with(".bin")).map(|f| f.size).sum();
    assert!(sent < total + (400 << 10), "what was here stayed: {sent} of {total}");
    assert!(find(&bench.models(), REPO).is_none_or(|p| p.phase != PullPhase::Done));
}

/// Whether this machine lets a child have a small disk: containers may not.
fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut probe = Command::new("unshare");
    probe.args([namespace(), "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(folder.path());
    probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// What it printed.
fn fetch_in_child(child: &Child) -> String {
    let output = child.command().stderr(Stdio::inherit()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "a child that may mount and fetch: {told}");
    told
}
