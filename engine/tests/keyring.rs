//! The token in a real keyring: a bus and a gnome-keyring of the test's own, with a home of its own.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::{Ended, Rmlx, end};

/// Runs a shell script on a bus of its own, where `$RMLX` is the binary. With `unlock`, a keyring is there and open; with `lock`, one
/// that nobody can open.
fn on_a_bus(rmlx: &Rmlx, keyring: &str, script: &str) -> Ended {
    let run = rmlx.folder.path().join("run");
    fs::create_dir_all(rmlx.folder.path().join(".local/share/keyrings")).unwrap();
    fs::create_dir_all(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    let start = match keyring {
        // Its password comes on standard input. It answers when a look-up does: nothing found is an answer too.
        "unlock" => {
            "gnome-keyring-daemon --unlock --foreground --components=secrets < <(printf test) >/dev/null 2>&1 & K=$!
             for i in $(seq 300); do secret-tool search --all probe x >/dev/null 2>&1 && break; sleep 0.1; done"
        }
        "lock" => "gnome-keyring-daemon --foreground --components=secrets >/dev/null 2>&1 & K=$!",
        _ => "K=",
    };
    let whole = format!("{start}\nset -e; trap '[ -z \"$K\" ] || kill $K' EXIT\n{script}");
    let mut command = rmlx.apart("dbus-run-session");
    command.args(["--", "bash", "-c", &whole]).env("RMLX", env!("CARGO_BIN_EXE_rmlx")).env_remove("RMLX_KEYRING");
    command.env("XDG_RUNTIME_DIR", &run).env("XDG_DATA_HOME", rmlx.folder.path().join(".local/share"));
    command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let child =
        command.spawn().expect("dbus-run-session, gnome-keyring-daemon and secret-tool are installed (scripts/setup test)");
    end(child)
}

#[test]
fn a_token_outlives_its_process_and_is_forgotten() {
    let rmlx = Rmlx::new();
    let ended = on_a_bus(
        &rmlx,
        "unlock",
        "$RMLX token --json
         echo hf_of_the_test | $RMLX token set --json
         $RMLX token --json
         secret-tool lookup service rMLX username hugging-face-token; echo
         $RMLX token forget --json
         $RMLX token --json
         secret-tool lookup service rMLX username hugging-face-token || echo gone",
    )
    .ok();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let (none, kept) = (r#"{"kept":"none","note":null}"#, r#"{"kept":"keyring","note":null}"#);
    assert_eq!(lines, [none, kept, kept, "hf_of_the_test", none, none, "gone"], "{ended:#?}");
    // Nowhere in its own files.
    let home = fs::read_dir(rmlx.home()).unwrap().flatten();
    for file in home.filter(|f| f.path().is_file()) {
        assert!(!String::from_utf8_lossy(&fs::read(file.path()).unwrap()).contains("hf_of_the_test"));
    }
}

/// [`end`] waits for no more than a minute.
#[test]
fn a_keyring_that_nobody_opens_is_none() {
    let rmlx = Rmlx::new();
    let ended = on_a_bus(&rmlx, "lock", "echo hf_of_the_test | $RMLX token set || echo code $?");
    assert!(ended.stdout.ends_with("code 1\n") && ended.stdout.contains("not in a secure store"), "{ended:#?}");
    assert!(!format!("{ended:?}").contains("hf_of_the_test"));
}

#[test]
fn a_bus_without_a_keyring_is_none() {
    let rmlx = Rmlx::new();
    let ended = on_a_bus(&rmlx, "none", "$RMLX token");
    assert!(ended.code == Some(0) && ended.stdout.starts_with("no access token"), "{ended:#?}");
}

#[test]
fn no_bus_is_none() {
    let rmlx = Rmlx::new();
    let mut command = rmlx.command(&["token", "--json"]);
    command.env_remove("RMLX_KEYRING").env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let ended = end(command.spawn().unwrap()).ok();
    assert!(ended.stdout.contains("no keyring that answers"), "{ended:#?}");
}
