//! Stop texts: where an answer ends although the model would go on.
//!
//! The result depends on the text alone and not on how tokens cut it: the stop that begins first ends the answer, of those that
//! begin together the first in the list. Text that may still turn out to be part of a stop is held back.

/// Looks for stop texts in an answer that arrives in pieces.
#[derive(Debug, Clone)]
pub struct StopFinder {
    stops: Vec<String>,
    /// Not yet released: the text from the first place where a stop may begin.
    held: String,
    stopped: bool,
}

/// What a piece of text brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// Text that belongs to the answer for good.
    pub text: String,
    /// The stop that ends the answer. Nothing comes after it.
    pub stop: Option<String>,
}

impl StopFinder {
    /// Empty stops are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), held: String::new(), stopped: false }
    }

    /// Takes the next piece. After a stop every piece is dropped.
    pub fn push(&mut self, piece: &str) -> Released {
        if self.stopped {
            return Released::default();
        }
        if self.stops.is_empty() {
            return Released { text: piece.into(), stop: None };
        }
        self.held.push_str(piece);
        let found = self.first_match();
        let open = self.first_open(found);
        match (found, open) {
            (Some((at, stop)), None) => self.end(at, stop),
            // Another stop began earlier and may yet be found: wait.
            (_, Some(at)) => self.release(at),
            (None, None) => self.release(self.held.len()),
        }
    }

    /// The answer is over: gives what was held back, up to a stop in it.
    pub fn finish(&mut self) -> Released {
        match self.first_match() {
            Some((at, stop)) => self.end(at, stop),
            None => self.release(self.held.len()),
        }
    }

    fn release(&mut self, bytes: usize) -> Released {
        Released { text: self.held.drain(..bytes).collect(), stop: None }
    }

    fn end(&mut self, at: usize, stop: usize) -> Released {
        self.held.truncate(at);
        self.stopped = true;
        Released { text: std::mem::take(&mut self.held), stop: Some(self.stops[stop].clone()) }
    }

    /// Byte offset and index of the whole stop that begins first.
    fn first_match(&self) -> Option<(usize, usize)> {
        let places = self.stops.iter().enumerate().filter_map(|(i, stop)| Some((self.held.find(stop)?, i)));
        places.min()
    }

    /// The first offset at which the held text may become a stop that would win over `found`.
    fn first_open(&self, found: Option<(usize, usize)>) -> Option<usize> {
        let places = self.stops.iter().enumerate().filter_map(|(i, stop)| {
            let mut lengths = (1..stop.len()).rev().filter(|&n| stop.is_char_boundary(n));
            let open = lengths.find(|&n| self.held.ends_with(&stop[..n]))?;
            Some((self.held.len() - open, i))
        });
        places.filter(|place| found.is_none_or(|found| *place < found)).min().map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the rule says about a whole text.
    fn naive(text: &str, stops: &[String]) -> (String, Option<String>) {
        let places = stops.iter().enumerate().filter(|(_, s)| !s.is_empty());
        match places.filter_map(|(i, s)| Some((text.find(s.as_str())?, i))).min() {
            Some((at, i)) => (text[..at].into(), Some(stops[i].clone())),
            None => (text.into(), None),
        }
    }

    fn streamed(pieces: &[&str], stops: &[String]) -> (String, Option<String>) {
        let mut finder = StopFinder::new(stops.to_vec());
        let mut text = String::new();
        let mut stop = None;
        for piece in pieces {
            let released = finder.push(piece);
            assert!(stop.is_none() || released == Released::default(), "something came after the stop");
            text.push_str(&released.text);
            stop = stop.or(released.stop);
        }
        let rest = finder.finish();
        text.push_str(&rest.text);
        (text, stop.or(rest.stop))
    }

    fn check(pieces: &[&str], stops: &[&str], text: &str, stop: Option<&str>) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        assert_eq!(streamed(pieces, &stops), (text.into(), stop.map(str::to_string)));
        assert_eq!(naive(&pieces.concat(), &stops), (text.into(), stop.map(str::to_string)));
    }

    #[test]
    fn stops_are_found_across_pieces() {
        check(&["Hello ", "wor", "ld"], &["lo wo"], "Hel", Some("lo wo"));
        check(&["a", "b", "c"], &[], "abc", None);
        check(&["abc"], &["", "c"], "ab", Some("c"));
        check(&["ab", "d"], &["abc"], "abd", None);
        check(&["aa", "ab"], &["aab"], "a", Some("aab"));
        check(&["é", "\u{301}x"], &["\u{301}x"], "é", Some("\u{301}x"));
    }

    #[test]
    fn the_earliest_offset_wins_and_ties_go_to_the_first_listed() {
        check(&["ab", "c"], &["b", "abc"], "", Some("abc"));
        check(&["ab", "d"], &["b", "abc"], "a", Some("b"));
        check(&["ab"], &["b", "abc"], "a", Some("b"));
        check(&["xab", "c"], &["abc", "ab"], "x", Some("abc"));
        check(&["xab", "c"], &["ab", "abc"], "x", Some("ab"));
    }

    #[test]
    fn only_what_may_become_a_stop_is_held_back() {
        let mut finder = StopFinder::new(["</end>".to_string()]);
        assert_eq!(finder.push("one <").text, "one ");
        assert_eq!(finder.push("/").text, "");
        assert_eq!(finder.push("b> two").text, "</b> two");
        assert_eq!(finder.push(" <").text, " ");
        assert_eq!(finder.finish(), Released { text: "<".into(), stop: None });
    }

    #[test]
    fn every_split_of_a_text_gives_the_same() {
        let stops: Vec<String> = ["bab", "abb", "ba", "日b"].map(String::from).into();
        for text in ["aabbabab", "a日bab", "bbbbaabb", "日日abba", "aaaaaa"] {
            let expected = naive(text, &stops);
            let chars: Vec<(usize, char)> = text.char_indices().collect();
            for cuts in 0u32..1 << (chars.len() - 1) {
                let mut pieces = Vec::new();
                let mut start = 0;
                for (i, (at, _)) in chars.iter().enumerate().skip(1) {
                    if cuts & (1 << (i - 1)) != 0 {
                        pieces.push(&text[start..*at]);
                        start = *at;
                    }
                }
                pieces.push(&text[start..]);
                assert_eq!(streamed(&pieces, &stops), expected, "{pieces:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn streaming_equals_searching(
            pieces in prop::collection::vec("[abé\u{1F9D1}\u{200D}]{0,4}", 0..12),
            stops in prop::collection::vec("[abé\u{1F9D1}\u{200D}]{0,5}", 0..5),
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(streamed(&pieces, &stops), naive(&pieces.concat(), &stops));
        }
    }
}
