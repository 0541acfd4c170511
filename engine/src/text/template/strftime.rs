//! The `strftime_now` function: Python's `datetime.strftime` in the C locale.

use std::fmt::Write;

use time::OffsetDateTime;

/// `now` in the format of `strftime`. What is not a directive is copied, as glibc does.
pub fn strftime(now: OffsetDateTime, format: &str) -> String {
    let mut out = String::with_capacity(format.len() * 2);
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut ahead = rest.clone();
        let (padded, directive) = match ahead.next() {
            Some('-') => (false, ahead.next()),
            other => (true, other),
        };
        if directive.is_some_and(|d| write_directive(&mut out, now, d, padded)) {
            rest = ahead;
        } else {
            out.push('%');
        }
    }
    out
}

/// Whether `directive` is one. Writing to a String cannot fail.
fn write_directive(out: &mut String, now: OffsetDateTime, directive: char, padded: bool) -> bool {
    let mut number = |value: u32, width: usize, fill: char| {
        let _ = match (padded, fill) {
            (false, _) => write!(out, "{value}"),
            (true, '0') => write!(out, "{value:0width$}"),
            (true, _) => write!(out, "{value:width$}"),
        };
    };
    let hour12 = || {
        u32::from(match now.hour() % 12 {
            0 => 12,
            h => h,
        })
    };
    let since_sunday = u32::from(now.weekday().number_days_from_sunday());
    let since_monday = u32::from(now.weekday().number_days_from_monday());
    let ordinal = u32::from(now.ordinal());
    let (month, weekday) = (now.month().to_string(), now.weekday().to_string());
    match directive {
        'Y' => number(now.year().max(0) as u32, 4, '0'),
        'C' => number(now.year().max(0) as u32 / 100, 2, '0'),
        'y' => number(now.year().rem_euclid(100) as u32, 2, '0'),
        'm' => number(u32::from(u8::from(now.month())), 2, '0'),
        'd' => number(u32::from(now.day()), 2, '0'),
        'e' => number(u32::from(now.day()), 2, ' '),
        'H' => number(u32::from(now.hour()), 2, '0'),
        'k' => number(u32::from(now.hour()), 2, ' '),
        'I' => number(hour12(), 2, '0'),
        'l' => number(hour12(), 2, ' '),
        'M' => number(u32::from(now.minute()), 2, '0'),
        'S' => number(u32::from(now.second()), 2, '0'),
        'f' => number(now.microsecond(), 6, '0'),
        'j' => number(ordinal, 3, '0'),
        'w' => number(since_sunday, 1, '0'),
        'u' => number(since_monday + 1, 1, '0'),
        // Weeks begin on Sunday (U) or Monday (W); the days before the first one are week 0.
        'U' => number((ordinal + 6 - since_sunday) / 7, 2, '0'),
        'W' => number((ordinal + 6 - since_monday) / 7, 2, '0'),
        'V' => number(u32::from(now.iso_week()), 2, '0'),
        'G' => number(now.to_iso_week_date().0.max(0) as u32, 4, '0'),
        's' => out.push_str(&now.unix_timestamp().to_string()),
        'B' => out.push_str(&month),
        'b' | 'h' => out.push_str(&month[..3]),
        'A' => out.push_str(&weekday),
        'a' => out.push_str(&weekday[..3]),
        'p' => out.push_str(if now.hour() < 12 { "AM" } else { "PM" }),
        'P' => out.push_str(if now.hour() < 12 { "am" } else { "pm" }),
        // `datetime.now()` has no zone, so Python writes nothing for these.
        'z' | 'Z' => {}
        'n' => out.push('\n'),
        't' => out.push('\t'),
        '%' => out.push('%'),
        'D' | 'x' => out.push_str(&strftime(now, "%m/%d/%y")),
        'F' => out.push_str(&strftime(now, "%Y-%m-%d")),
        'T' | 'X' => out.push_str(&strftime(now, "%H:%M:%S")),
        'R' => out.push_str(&strftime(now, "%H:%M")),
        'r' => out.push_str(&strftime(now, "%I:%M:%S %p")),
        'c' => out.push_str(&strftime(now, "%a %b %e %H:%M:%S %Y")),
        _ => return false,
    }
    true
}
