//! What a model writes is drawn and does nothing else: the page's policy, in the real window.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::app::App;
use crate::desk::Desk;
use crate::page::Page;
use crate::screen::shot;
use crate::wait::{SOON, stays, until_true};

/// Puts a text in the place of the one answer that there is: the model cannot be made to write it.
fn rewrite_answer(desk: &Desk, text: &str) {
    let database = Connection::open(desk.dir.join("rmlx/conversations.db")).unwrap();
    database.busy_timeout(SOON).unwrap();
    let changed = database.execute("UPDATE messages SET content = ?1 WHERE role = 'assistant'", [text]).unwrap();
    assert_eq!(changed, 1);
}

#[test]
fn formulas_and_code_are_drawn_and_the_page_stays_closed() {
    let desk = Desk::new("content");
    let trap = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let bait = format!("http://127.0.0.1:{}", trap.local_addr().unwrap().port());
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.ask("Name one planet.");
    page.wait_for_end();
    let title = page.titles().pop().unwrap();
    page.click("button", "New conversation");
    rewrite_answer(
        &desk,
        &format!(
            "Sum: $$\\sum_{{k=1}}^n k = \\frac{{n(n+1)}}{{2}}$$\n\n```rust\nfn main() {{ println!(\"hi\"); }}\n```\n\n\
             ![a picture]({bait}/picture.png) <img src=\"{bait}/raw.png\"> [a link]({bait}/link)\n\n\
             <script>window.bitten = 1</script><b onclick=\"window.bitten = 1\">bold?</b>\n"
        ),
    );
    page.click("button", &title);
    page.wait_for_text("Sum:");
    until_true("the formula is drawn", SOON, || {
        page.eval("return document.querySelectorAll('.markdown .katex').length", &[]) == 1
    });
    let keyword = "return document.querySelector('.markdown .hljs-keyword')?.textContent ?? ''";
    until_true("the code is coloured", SOON, || page.eval(keyword, &[]) == "fn");
    // Drawn means that the formula's parts lie over one another, which takes its style sheet and its fonts.
    let height = page.eval("return document.querySelector('.markdown .katex').getBoundingClientRect().height", &[]);
    assert!(height.as_f64().unwrap() > 25.0, "{height}");
    shot("formula-and-code");

    let evaluated = page.eval("try { return new Function('return 1')() } catch (e) { return e.name }", &[]);
    assert_eq!(evaluated, "EvalError");
    let inline = "const s = document.createElement('script'); s.textContent = 'window.bitten = 1'; document.head.append(s); return window.bitten ?? 0";
    assert_eq!(page.eval(inline, &[]), 0);
    // Whatever would put an element into the page still cannot reach a host.
    let load =
        "const i = new Image(); i.src = arguments[0]; document.body.append(i); fetch(arguments[0]).catch(() => 0); return 1";
    page.eval(load, &[format!("{bait}/image.png").into()]);
    let address = page.eval("return location.href", &[]);
    page.eval("location.href = arguments[0]; return 1", &[json!(format!("{bait}/away"))]);
    page.eval("window.open(arguments[0]); return 1", &[json!(format!("{bait}/window"))]);
    page.click("link", "a link");
    page.wait_for_text("Open this link?");
    shot("link");
    page.click("button", "Cancel");

    trap.set_nonblocking(true).unwrap();
    stays("nothing was asked of the other host", Duration::from_secs(1), || trap.accept().is_err());
    assert_eq!(page.eval("return location.href", &[]), address);
    assert_eq!(page.eval("return window.bitten ?? 0", &[]), 0);

    // The control: the trap does hear what reaches it.
    trap.set_nonblocking(false).unwrap();
    let visit = thread::spawn(move || crate::http::request(bait.rsplit(':').next().unwrap().parse().unwrap(), "GET", "/", None));
    let mut heard = [0; 3];
    trap.accept().unwrap().0.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"GET");
    visit.join().unwrap();
    drop(page);
    app.quit(&desk);
}
