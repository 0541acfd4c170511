//! The page in the window, over WebDriver. WebKitWebDriver joins an app that runs already, through WebKit's remote inspector.

use std::process::{Child, Stdio};
use std::time::Duration;

use fantoccini::elements::{Element, ElementRef};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::app::{App, free_port};
use crate::desk::Desk;
use crate::wait::{ANSWER, SOON, until, until_true};

const ENTER: &str = "\u{E007}";

/// Elements that can be seen, by role and accessible name.
const FIND: &str = r#"
const [role, wanted] = arguments;
const kinds = {
  button: "button:not([role]), [role=button]",
  switch: "[role=switch]",
  textbox: "textarea, input:not([type]), input[type=text]",
  searchbox: "input[type=search]",
  link: "[role=link], a[href]",
  menuitem: "[role^=menuitem]",
};
const byIds = (ids) => ids.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
const name = (e) =>
  (e.getAttribute("aria-labelledby") ? byIds(e.getAttribute("aria-labelledby")) : null) ??
  e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent ?? (e.textContent || e.title);
const fits = (text) => (wanted.endsWith("*") ? text.startsWith(wanted.slice(0, -1)) : text === wanted);
return [...document.querySelectorAll(kinds[role])].filter((e) => e.checkVisibility() && fits(name(e).trim()));
"#;

/// Notes every text of the window, as it changes.
const WATCH: &str = r#"
window.seen = [];
const note = () => {
  const answers = [...document.querySelectorAll("li[data-role=assistant] .markdown")];
  const now = { text: document.body.innerText, answer: answers.at(-1)?.innerText ?? "" };
  const last = window.seen.at(-1);
  if (!last || last.text !== now.text || last.answer !== now.answer) window.seen.push(now);
};
note();
new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
"#;

pub struct Page {
    runtime: Runtime,
    client: Client,
    driver: Child,
}

/// What [`Page::watch`] saw at one moment.
#[derive(Debug)]
pub struct Seen {
    pub text: String,
    /// Of the newest answer.
    pub answer: String,
}

impl Page {
    /// Joins the app's window, once it is there, and waits until the page is ready.
    pub fn open(desk: &Desk, app: &mut App) -> Self {
        let port = free_port();
        let mut command = desk.command("WebKitWebDriver");
        command.args(["--host=127.0.0.1".into(), format!("--port={port}"), format!("--target=127.0.0.1:{}", app.inspector)]);
        command.stdout(Stdio::null()).stderr(desk.log("driver"));
        let driver = command.spawn().expect("WebKitWebDriver starts");
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = until("a WebDriver session begins", SOON, || {
            assert!(app.ended().is_none(), "the app ended");
            let connect = async {
                let mut builder = ClientBuilder::new(HttpConnector::new());
                builder.capabilities(json!({ "webkitgtk:browserOptions": {} }).as_object().unwrap().clone());
                builder.connect(&format!("http://127.0.0.1:{port}")).await
            };
            runtime.block_on(async { tokio::time::timeout(SOON, connect).await }).ok()?.ok()
        });
        let page = Self { runtime, client, driver };
        // A session begins at the window that the app made first, which may have gone since.
        let windows = until("a window to drive", SOON, || page.wait(page.client.windows()).ok().filter(|all| !all.is_empty()));
        assert_eq!(windows.len(), 1);
        page.wait(page.client.switch_to_window(windows[0].clone())).unwrap();
        page.until("the message field", || page.all("textbox", "Message").pop());
        page
    }

    fn wait<T>(&self, command: impl Future<Output = T>) -> T {
        let timed = async { tokio::time::timeout(SOON, command).await };
        self.runtime.block_on(timed).expect("WebDriver answers")
    }

    /// Runs JavaScript in the page. Its failure is the test's.
    pub fn eval(&self, script: &str, arguments: &[Value]) -> Value {
        self.wait(self.client.execute(script, arguments.to_vec())).unwrap_or_else(|e| panic!("{script}: {e}"))
    }

    pub fn all(&self, role: &str, name: &str) -> Vec<Element> {
        let found = self.eval(FIND, &[role.into(), name.into()]);
        let id = |element: &Value| element.as_object()?.values().next()?.as_str().map(|id| ElementRef::from(id.to_owned()));
        let ids = found.as_array().into_iter().flatten().filter_map(id);
        ids.map(|id| Element::from_element_id(self.client.clone(), id)).collect()
    }

    /// The one that has this name, once it is there. A `*` at the end stands for any rest.
    pub fn get(&self, role: &str, name: &str) -> Element {
        self.until(&format!("{role} “{name}”"), || self.all(role, name).into_iter().next())
    }

    pub fn click(&self, role: &str, name: &str) {
        let element = self.get(role, name);
        self.wait(element.click()).unwrap_or_else(|e| panic!("{role} “{name}”: {e}"));
    }

    /// Scrolls it into the middle, for a picture.
    pub fn show(&self, role: &str, name: &str) {
        let element = serde_json::to_value(self.get(role, name)).unwrap();
        self.eval("arguments[0].scrollIntoView({ block: 'center' })", &[element]);
    }

    /// What `get` finds gets keys.
    pub fn keys(&self, role: &str, name: &str, keys: &str) {
        let element = self.get(role, name);
        self.wait(element.send_keys(keys)).unwrap_or_else(|e| panic!("{role} “{name}”: {e}"));
    }

    pub fn write(&self, text: &str) {
        self.keys("textbox", "Message", text);
    }

    /// Types a question and sends it.
    pub fn ask(&self, question: &str) {
        self.write(&format!("{question}{ENTER}"));
    }

    pub fn enter(&self, role: &str, name: &str) {
        self.keys(role, name, ENTER);
    }

    /// What is typed and not sent.
    pub fn draft(&self) -> String {
        self.eval("return document.querySelector('form textarea').value", &[]).as_str().unwrap().into()
    }

    /// What the window says.
    pub fn text(&self) -> String {
        self.eval("return document.body.innerText", &[]).as_str().unwrap().into()
    }

    pub fn says(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    pub fn wait_for_text(&self, text: &str) {
        self.wait_for_text_within(text, SOON);
    }

    pub fn wait_for_text_within(&self, text: &str, limit: Duration) {
        until_true(&format!("the window says “{text}”"), limit, || self.says(text));
    }

    fn messages(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())";
        serde_json::from_value(self.eval(script, &[selector.into()])).unwrap()
    }

    /// The answers of the open conversation.
    pub fn answers(&self) -> Vec<String> {
        self.messages("li[data-role=assistant] .markdown")
    }

    pub fn questions(&self) -> Vec<String> {
        self.messages("li[data-role=user] .bubble")
    }

    /// The titles in the list of conversations.
    pub fn titles(&self) -> Vec<String> {
        self.messages("nav li button.entry .title")
    }

    /// Waits for the end of the answer that is being made: the button sends again.
    pub fn wait_for_end(&self) {
        until_true("the answer is complete", ANSWER, || {
            !self.all("button", "Send").is_empty() && !self.all("button", "Retry").is_empty()
        });
    }

    /// From now on, every change is noted.
    pub fn watch(&self) {
        self.eval(WATCH, &[]);
    }

    pub fn seen(&self) -> Vec<Seen> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let seen = self.eval("return window.seen", &[]);
        seen.as_array().unwrap().iter().map(|now| Seen { text: text(&now["text"]), answer: text(&now["answer"]) }).collect()
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, SOON, || {
                let found = look();
                if found.is_none() {
                    last = self.text();
                }
                found
            })
        }));
        found.unwrap_or_else(|failure| {
            eprintln!("---- the window said ----\n{last}");
            std::panic::resume_unwind(failure)
        })
    }
}

impl Drop for Page {
    /// The session is left behind, not ended: its end would close the window.
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
