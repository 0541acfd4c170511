//! The walls between the engine's modules: every path in its code against the table in `docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module to the modules that it may use.
type Table = BTreeMap<String, BTreeSet<String>>;

const HEADING: &str = "## Who may use what";
/// Crates that count as modules.
const CRATES: [&str; 2] = ["mlx", "mlx_sys"];
/// What may stand before a path that begins with `::`.
const KEYWORDS: [&str; 10] = ["use", "as", "return", "impl", "for", "dyn", "mut", "in", "where", "move"];

#[test]
fn the_engine_keeps_to_the_table() {
    let table = read_table();
    let src = root().join("engine/src");
    let mut wrong = Vec::new();
    let mut files = 0;
    for path in rust_files(&src) {
        let inside = path.strip_prefix(&src).unwrap().to_owned();
        // The one only declares the modules, the others are test modules in files of their own.
        if inside == Path::new("lib.rs") || inside.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        files += 1;
        let code = fs::read_to_string(&path).unwrap();
        wrong.extend(violations(&table, &inside, &code));
    }
    assert!(files > 5, "the walk is broken: {files} files");
    assert!(wrong.is_empty(), "against the table in docs/architecture.md:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_safe_layer_names_the_raw_bindings() {
    let mut named = 0;
    for folder in ["engine/src", "engine/tests", "engine/benches", "engine/fuzz", "engine/mlx/src"] {
        for path in rust_files(&root().join(folder)) {
            // This file names them in its fixtures, as text.
            let uses = idents(&tokens(&fs::read_to_string(&path).unwrap())).any(|ident| ident == "mlx_sys");
            named += usize::from(uses);
            assert!(!uses || folder == "engine/mlx/src", "{} names mlx_sys", path.display());
        }
    }
    assert!(named > 0 || !root().join("engine/mlx/src/array.rs").exists(), "the search is broken: nobody names mlx_sys");
}

#[test]
fn the_table_is_sound() {
    let table = read_table();
    for (module, uses) in &table {
        for used in uses {
            let known = table.contains_key(used) || CRATES.contains(&used.as_str());
            assert!(known, "{module} may use {used}, which has no row");
            assert!(!reaches(&table, used, module), "{module} and {used} may use each other");
        }
    }
}

/// The control: forbidden imports in every form that Rust has for them must be found, and nothing else.
#[test]
fn planted_imports_are_reported() {
    let table = read_table();
    let found = |file: &str, code: &str| -> Vec<String> { violations(&table, Path::new(file), code) };
    for (file, code, used) in [
        ("kv/ring.rs", "use crate::arch::llama;", "arch"),
        ("kv/mod.rs", "use crate::{error::Error, hub::{self, fetch}};", "hub"),
        ("kv/ring.rs", "use {crate::arch, std::fmt};", "arch"),
        ("text/mod.rs", "use mlx::Array;", "mlx"),
        ("text/mod.rs", "use ::mlx::Array;", "mlx"),
        ("text/mod.rs", "use mlx as m;", "mlx"),
        ("text/mod.rs", "extern crate mlx;", "mlx"),
        ("text/mod.rs", "fn f(a: &mlx::Array) {}", "mlx"),
        ("text/a/b.rs", "use super::super::super::worker;", "worker"),
        ("text/a.rs", "use super::super::{error, kv::Ring};", "kv"),
        ("pipe.rs", "use super::hub;", "hub"),
        ("pipe.rs", "fn f() { crate::text::encode() }", "text"),
        ("pipe.rs", "pub use crate::worker as boss;", "worker"),
        ("pipe.rs", "use crate :: /* a comment */ worker;", "worker"),
        ("pipe.rs", "use crate::r#worker;", "worker"),
        ("nn/linear.rs", "use mlx_sys::mlx_array;", "mlx_sys"),
        ("bin/rmlx/run.rs", "use rmlx_engine::worker::Job;", "worker"),
        ("bin/rmlx/run.rs", "use rmlx_engine::{api, pipe::Reader};", "pipe"),
        ("api.rs", "const C: char = '\"'; use crate::hub; // \"", "hub"),
        ("api.rs", "fn f<'a>(x: &'a str) { crate::hub::x(x) }", "hub"),
        ("api.rs", "const S: &str = r#\"\"quoted\"\"#; use crate::hub;", "hub"),
        ("api.rs", "#[cfg(test)] mod tests { } use crate::hub;", "hub"),
    ] {
        let reports = found(file, code);
        assert_eq!(reports.len(), 1, "{file}: {code}: {reports:?}");
        assert!(reports[0].contains(&format!("may not use {used}")), "{reports:?}");
    }
    for (file, code) in [
        ("kv/ring.rs", "use crate::kv::codec; use mlx::Array; use crate::error::{Error, Result};"),
        ("kv/ring.rs", "use super::{codec, plan};"),
        ("kv/ring.rs", "// use crate::arch;\n/* crate::hub /* nested */ crate::arch */ const S: &str = \"use crate::arch;\";"),
        ("kv/ring.rs", "const S: &str = r##\"use crate::arch; \"# crate::hub\"##;"),
        ("kv/ring.rs", "const S: &str = \"\\\"crate::arch\";"),
        ("kv/ring.rs", "#[cfg(test)]\nmod tests { use crate::hub; fn f() { if true {} } }"),
        ("text/mod.rs", "fn f(mlx: u8) -> u8 { self.mlx + mlx }"),
        ("text/mod.rs", "use other::mlx::Array;"),
        ("bin/rmlx/run.rs", "use crate::answer::follow; use rmlx_engine::engine::Engine;"),
    ] {
        assert_eq!(found(file, code), [""; 0], "{file}: {code}");
    }
    assert!(found("newcomer.rs", "")[0].contains("has no row"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read_table() -> Table {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = page.split(HEADING).nth(1).unwrap_or_else(|| panic!("docs/architecture.md has no section {HEADING:?}"));
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "–").map(String::from).collect()
    };
    let mut table = Table::new();
    let lines = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    for line in lines.skip(2) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(cells.len() >= 4, "no row: {line}");
        for module in names(cells[1]) {
            assert!(table.insert(module.clone(), names(cells[2])).is_none(), "two rows for {module}");
        }
    }
    assert!(table.len() > 10, "the table was not found: {table:?}");
    table
}

fn reaches(table: &Table, from: &str, to: &str) -> bool {
    from == to || table.get(from).is_some_and(|uses| uses.iter().any(|used| reaches(table, used, to)))
}

/// What the file `inside` engine/src uses without leave.
fn violations(table: &Table, inside: &Path, code: &str) -> Vec<String> {
    let path: Vec<String> = inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let module = &path[0];
    let Some(allowed) = table.get(module) else {
        return vec![format!("{}: {module} has no row in the table", inside.display())];
    };
    // How many `super` lead from this file's module to the crate's root.
    let depth = if path.last().is_some_and(|last| last == "mod") { path.len() - 1 } else { path.len() };
    let used = used_modules(&without_tests(tokens(code)), table, depth, module == "bin");
    used.into_iter()
        .filter(|used| used != module && !allowed.contains(used))
        .map(|used| format!("{}: {module} may not use {used}", inside.display()))
        .collect()
}

/// Every module that a path in the code leads to.
fn used_modules(tokens: &[Token], table: &Table, depth: usize, is_bin: bool) -> BTreeSet<String> {
    let own_crate = if is_bin { "rmlx_engine" } else { "crate" };
    let mut used = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Ident(name) = token else { continue };
        let after_path = at > 1
            && tokens[at - 1] == Token::Sep
            && matches!(&tokens[at - 2], Token::Ident(before) if !KEYWORDS.contains(&before.as_str()));
        let follows = tokens.get(at + 1) == Some(&Token::Sep);
        if name == own_crate && follows && !after_path {
            used.extend(heads(&tokens[at + 2..]));
        } else if name == "super" && !is_bin && !after_path {
            let ups = tokens[at..].chunks(2).take_while(|pair| *pair == [Token::Ident("super".into()), Token::Sep]).count();
            if ups >= depth {
                // Beyond the root (a `mod` inside the file) names may be anything; only modules matter.
                used.extend(heads(&tokens[at + 2 * ups..]).into_iter().filter(|head| table.contains_key(head)));
            }
        } else if CRATES.contains(&name.as_str()) && !after_path {
            let imported = at > 0 && matches!(&tokens[at - 1], Token::Ident(word) if word == "use" || word == "crate");
            if follows || imported {
                used.insert(name.clone());
            }
        }
    }
    used
}

/// The first names of the path or group of paths at the start of the tokens: `a::b` or `{a::b, c}`.
fn heads(tokens: &[Token]) -> Vec<String> {
    match tokens.first() {
        Some(Token::Ident(name)) => vec![name.clone()],
        Some(Token::Other('{')) => {
            let (mut heads, mut level, mut fresh) = (Vec::new(), 0, false);
            for token in tokens {
                match token {
                    Token::Other('{') => (level, fresh) = (level + 1, level == 0),
                    Token::Other('}') => level -= 1,
                    Token::Other(',') => fresh = level == 1,
                    Token::Ident(name) if fresh => {
                        heads.push(name.clone());
                        fresh = false;
                    }
                    _ => fresh = false,
                }
                if level == 0 {
                    break;
                }
            }
            heads
        }
        _ => Vec::new(),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Ident(String),
    /// `::`
    Sep,
    Other(char),
}

fn idents(tokens: &[Token]) -> impl Iterator<Item = &str> {
    tokens.iter().filter_map(|token| if let Token::Ident(name) = token { Some(name.as_str()) } else { None })
}

/// Drops every `#[cfg(test)] mod name { ... }`.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let start = self::tokens("#[cfg(test)] mod");
    let mut kept = Vec::new();
    let mut rest = tokens.as_slice();
    while let Some(token) = rest.first() {
        if rest.starts_with(&start) && rest.get(start.len() + 1) == Some(&Token::Other('{')) {
            let mut level = 0;
            let end = rest.iter().position(|token| {
                level += match token {
                    Token::Other('{') => 1,
                    Token::Other('}') => -1,
                    _ => 0,
                };
                level == 0 && *token == Token::Other('}')
            });
            rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        } else {
            kept.push(token.clone());
            rest = &rest[1..];
        }
    }
    kept
}

/// Identifiers, `::` and single characters; comments, texts and characters in quotes are gone.
fn tokens(code: &str) -> Vec<Token> {
    let code: Vec<char> = code.chars().collect();
    let at = |i: usize| code.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut i) = (Vec::new(), 0);
    while i < code.len() {
        let c = code[i];
        match (c, at(i + 1)) {
            ('/', '/') => i += code[i..].iter().position(|c| *c == '\n').unwrap_or(code.len() - i),
            ('/', '*') => {
                let mut level = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (level, i) = (level + 1, i + 2),
                        ('*', '/') => (level, i) = (level - 1, i + 2),
                        _ => i += 1,
                    }
                    if level == 0 || i >= code.len() {
                        break;
                    }
                }
            }
            ('"', _) => i = after_text(&code, i),
            ('\'', '\\') => i = 1 + (i + 3..code.len()).find(|j| code[*j] == '\'').unwrap_or(code.len()),
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (':', ':') => {
                tokens.push(Token::Sep);
                i += 2;
            }
            _ if is_word(c) => {
                let end = (i..code.len()).find(|j| !is_word(code[*j])).unwrap_or(code.len());
                let word: String = code[i..end].iter().collect();
                i = end;
                let raw = (i..code.len()).find(|j| code[*j] != '#').unwrap_or(code.len());
                match word.as_str() {
                    "r" | "br" | "cr" if at(raw) == '"' => i = after_raw_text(&code, raw, raw - i),
                    "r" if at(i) == '#' => i += 1,
                    _ => tokens.push(Token::Ident(word)),
                }
            }
            _ => {
                if !c.is_whitespace() {
                    tokens.push(Token::Other(c));
                }
                i += 1;
            }
        }
    }
    tokens
}

fn after_text(code: &[char], quote: usize) -> usize {
    let mut i = quote + 1;
    while i < code.len() && code[i] != '"' {
        i += if code[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn after_raw_text(code: &[char], quote: usize, hashes: usize) -> usize {
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let rest = &code[quote + 1..];
    rest.windows(end.len()).position(|w| w == end).map_or(code.len(), |found| quote + 1 + found + end.len())
}
