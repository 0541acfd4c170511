//! Writing to standard output and error without `println`, which panics when the other end is closed.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use indicatif::DecimalBytes;
use rmlx_engine::error::Error;
use serde_json::Value;

use crate::failure::{Failure, Result};

/// Written at once, not at the end of the line.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => Failure::StdoutClosed,
        _ => Error::io("standard output", e).into(),
    })
}

pub fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

pub fn print_json(value: &Value) -> Result<()> {
    print_line(&value.to_string())
}

/// Of a type of the engine's border: plain data, which always is JSON.
pub fn json(value: impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::Internal(e.to_string()).into())
}

/// To the human; there is nobody to tell when that fails. Messages quote names and files, which may hold anything, so control
/// characters are shown and not obeyed.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Of what goes on without what was asked for.
pub fn warn_of(trouble: Option<&Error>) {
    if let Some(trouble) = trouble {
        complain(&format!("warning: the settings are not followed: {trouble}"));
    }
}

/// A question at a terminal; anything but a yes is a no.
pub fn ask(question: &str) -> Result<bool> {
    let _ = write!(io::stderr().lock(), "{}", printable(question));
    let mut answer = String::new();
    io::stdin().lock().take(100).read_line(&mut answer).map_err(|e| Error::io("standard input", e))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES"))
}

/// Text of somebody else's making, over several lines, so that it cannot drive the terminal.
pub fn printable(text: &str) -> String {
    shown(text, &['\n', '\t'])
}

fn shown(text: &str, kept: &[char]) -> String {
    text.replace(|c: char| c.is_control() && !kept.contains(&c), "\u{fffd}")
}

/// In units of 1000, as disks are sold and as the engine's notes count.
pub fn bytes(count: u64) -> String {
    DecimalBytes(count).to_string()
}

/// `135,000,000` as `135M`.
pub fn count(number: u64) -> String {
    let n = number as f64;
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}K", n / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n / 1e6),
        _ => format!("{:.2}B", n / 1e9),
    }
}

/// Columns as wide as their widest cell; the last is not padded. Names of folders may hold anything, so control characters are
/// shown and not obeyed.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| shown(cell, &[])).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let row = |cells: [&str; 3]| cells.map(String::from).to_vec();
        let rows = [row(["name", "size", "folder"]), row(["é", "1.5 GiB", ""])];
        assert_eq!(table(&rows), "name  size     folder\né     1.5 GiB\n");
        assert_eq!(table(&[row(["a\nb", "\u{1b}[31m", "x"])]), "a\u{fffd}b  \u{fffd}[31m  x\n");
        assert_eq!((count(999).as_str(), count(134_515_008).as_str(), count(8_030_000_000).as_str()), ("999", "134.5M", "8.03B"));
    }
}
