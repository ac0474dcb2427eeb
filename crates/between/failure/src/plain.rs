//! Makes text that other processes wrote safe for a terminal.
//!
//! A process chooses its name, its command line, the directories of its libraries and its messages.
//! A terminal does not show some of the characters in them but obeys them: they move the cursor,
//! change titles, or reverse the order of the text next to them. Each such character is replaced by
//! U+FFFD, so that its place can be seen.

use std::borrow::Cow;
use std::fmt::Display;

/// The character that is shown instead.
pub const REPLACEMENT: char = '\u{fffd}';

/// Whether a terminal obeys the character instead of showing it. Such are control characters (C0,
/// DEL, C1), line and paragraph separators, and characters that set the direction of text.
pub const fn is_obeyed(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{206f}'
    )
}

/// Makes one line of text safe: line breaks are replaced as well.
pub fn line(text: &str) -> Cow<'_, str> {
    without(text, is_obeyed)
}

/// Makes text of several lines safe: line feeds and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    without(text, |c| is_obeyed(c) && !matches!(c, '\n' | '\t'))
}

fn without(text: &str, unwanted: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&unwanted) {
        return Cow::Borrowed(text);
    }
    let shown = |c| if unwanted(c) { REPLACEMENT } else { c };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Returns a number with its noun: `1 process`, `2 processes`.
pub fn counted(count: impl Display + Copy + TryInto<u64>, one: &str, more: &str) -> String {
    let noun = match count.try_into() {
        Ok(1) => one,
        _ => more,
    };
    format!("{count} {noun}")
}

/// Returns JSON with the same meaning in which a terminal obeys nothing. Such characters occur only
/// in strings, where each of them has an escape.
pub fn json(json: &str) -> Cow<'_, str> {
    let unwanted = |c| is_obeyed(c) && !matches!(c, '\n' | '\t');
    if !json.contains(unwanted) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if unwanted(c) {
            // All of them are in the basic plane, so each has one escape.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_obeyed_stays() {
        let evil = "a\x1b[2J\r\n\x07b\u{9b}31m\u{7f}\u{202e}gpj.exe\u{2066}\u{2028}c\u{200f}\t";
        let clean = line(evil);
        assert!(!clean.contains(is_obeyed), "{clean:?}");
        assert_eq!(clean.chars().count(), evil.chars().count());
        let kept: String = lines(evil).chars().filter(|c| is_obeyed(*c)).collect();
        assert_eq!(kept, "\n\t");
    }

    #[test]
    fn what_is_shown_is_left_alone() {
        for text in [
            "",
            "vadd(float const*)",
            "Grüße, 東京 🚀 e\u{301}",
            "\u{a0}",
        ] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
            assert!(matches!(json(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn one_is_singular() {
        let said = [0, 1, 2].map(|count| counted(count, "host", "hosts"));
        assert_eq!(said, ["0 hosts", "1 host", "2 hosts"]);
        assert_eq!(counted(u64::MAX, "b", "bs"), format!("{} bs", u64::MAX));
        assert_eq!(counted(1_usize, "b", "bs"), "1 b");
    }

    #[test]
    fn json_keeps_its_meaning() {
        assert_eq!(
            json("{\"a\":\"\u{202e}\u{7f}\"}"),
            "{\"a\":\"\\u202e\\u007f\"}"
        );
    }
}
