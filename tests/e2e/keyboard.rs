//! A chat by keyboard alone, as a screen reader sees it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::Value;

use crate::app::App;
use crate::desk::Desk;
use crate::screen::{focus, key, shot, window, write};
use crate::wait::{ANSWER, SOON, until, until_true};

/// Tab stops of the window, at most.
const STOPS: usize = 60;

struct Reader {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    app: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    role: String,
    name: String,
    text: String,
    states: Vec<String>,
    depth: u64,
}

impl Node {
    fn is(&self, state: &str) -> bool {
        self.states.iter().any(|one| one == state)
    }
}

impl Reader {
    fn start(desk: &Desk, app: &str) -> Self {
        let mut command = desk.command("/usr/bin/python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tree.py"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(desk.log("tree"));
        let mut child = command.spawn().expect("tree.py starts");
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, app: app.into() }
    }

    fn tree(&mut self) -> Vec<Node> {
        writeln!(self.input, "{}", self.app).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let tree: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let text = |node: &Value, key: &str| node[key].as_str().unwrap().to_owned();
        let node = |node: &Value| Node {
            role: text(node, "role"),
            name: text(node, "name"),
            text: text(node, "text"),
            states: node["states"].as_array().unwrap().iter().map(|state| state.as_str().unwrap().into()).collect(),
            depth: node["depth"].as_u64().unwrap(),
        };
        tree.as_array().unwrap_or_else(|| panic!("{tree}")).iter().map(node).collect()
    }

    /// What has the keyboard: the innermost node that says so.
    fn focused(&mut self) -> Option<Node> {
        self.tree().into_iter().rfind(|node| node.is("focused") && node.is("focusable"))
    }

    /// What is below the node of this role.
    fn below(&mut self, role: &str) -> Vec<Node> {
        let tree = self.tree();
        let mut rest = tree.into_iter().skip_while(|node| node.role != role);
        let Some(top) = rest.next() else { return Vec::new() };
        rest.take_while(|node| node.depth > top.depth).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_chat_by_keyboard_is_heard_by_a_screen_reader() {
    let desk = Desk::accessible("keyboard");
    let app = App::start(&desk, &[]);
    let mut reader = Reader::start(&desk, "rmlx-app");
    focus(&window());
    let field = until("the message field has the keyboard", SOON, || reader.focused().filter(|node| node.name == "Message"));
    assert_eq!(field.role, "entry", "{field:?}");

    write("What is the capital of France?");
    until_true("the field has the question", SOON, || {
        reader.focused().is_some_and(|node| node.text.contains("capital of France?"))
    });
    key("Return");
    until_true("the question is in the tree", SOON, || {
        reader.tree().iter().any(|node| node.text == "What is the capital of France?")
    });
    until_true("the answer is in the tree", ANSWER, || {
        reader.tree().iter().any(|node| node.role == "paragraph" && node.text.contains("Paris"))
    });

    // Announced are the beginning, whole sentences, and the end; each once.
    let said = |reader: &mut Reader| -> Vec<String> {
        let texts = reader.below("log").into_iter().filter(|node| node.role == "paragraph");
        texts.map(|node| if node.text.is_empty() { node.name } else { node.text }).collect()
    };
    until_true("the end is announced", ANSWER, || said(&mut reader).iter().any(|text| text == "Answer complete."));
    let said = said(&mut reader);
    assert_eq!(said.iter().filter(|text| text.contains("Paris")).count(), 1, "{said:?}");
    assert!(said.iter().all(|text| text.ends_with(['.', '!', '?', ':'])), "{said:?}");
    shot("keyboard");

    // Round the window with Tab: everything that gets the keyboard says what it is.
    let mut stops = Vec::<Node>::new();
    for _ in 0..STOPS {
        let before = reader.focused();
        key("Tab");
        // At the end of the page the keyboard may go to the window itself and stay there for one step.
        let now = until("Tab goes somewhere", SOON, || reader.focused().filter(|node| Some(node) != before.as_ref()));
        assert!(!now.name.trim().is_empty(), "no name: {now:?}, after {stops:?}");
        if stops.iter().any(|node| node.role == now.role && node.name == now.name) {
            break;
        }
        stops.push(now);
    }
    let names: BTreeSet<_> = stops.iter().map(|node| node.name.as_str()).collect();
    for name in ["Message", "Send", "Retry", "New conversation", "Search conversations", "Settings", "Conversation"] {
        assert!(names.contains(name), "Tab does not reach {name}: {names:?}");
    }
    drop(reader);
    app.quit(&desk);
}
