//! The only access to standard output and standard error.
//!
//! What is printed comes in part from other processes: names, command lines, paths, messages. It
//! passes [`plain`] here, so no caller can forget it. No other module may open the two streams
//! (`crates/attacher/cli/clippy.toml`). Our own sequences, for colours, are constants of the program.
//!
//! Nothing here fails. The program continues when text is lost, and [`output`] keeps in mind that
//! standard output has lost some.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that may open the streams"
)]

use midair_failure::{output, plain};
use std::io::{IsTerminal, Write, stderr, stdout};

/// The attributes that a table may have, which are those that `midair_output::table` writes.
const ATTRIBUTES: [&str; 3] = ["[0m", "[1m", "[2m"];

/// The spaces before the further lines of a message.
pub(crate) const INDENT: usize = 2;

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Whether it is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Stream::Out => stdout().is_terminal(),
            Stream::Err => stderr().is_terminal(),
        }
    }

    /// Returns the columns of the terminal, or None where it is not a terminal.
    pub(crate) fn columns(self) -> Option<usize> {
        let size = match self {
            Stream::Out => terminal_size::terminal_size_of(stdout()),
            Stream::Err => terminal_size::terminal_size_of(stderr()),
        };
        size.map(|(width, _)| usize::from(width.0))
    }

    /// Prints one line.
    pub(crate) fn line(self, text: &str) {
        self.put(&format!("{}\n", plain::line(text)));
    }

    /// Prints one line, which continues on further ones where the terminal would break a word. These
    /// are indented by so many spaces.
    pub(crate) fn folded(self, text: &str, indent: usize) {
        let lines = folded(&plain::line(text), self.columns(), indent);
        self.put(&format!("{}\n", lines.join("\n")));
    }

    /// Prints text that has its own line ends.
    pub(crate) fn lines(self, text: &str) {
        self.put(&plain::lines(text));
    }

    /// Prints a JSON document as one line.
    pub(crate) fn json(self, document: &str) {
        self.put(&format!("{}\n", plain::json(document)));
    }

    /// Prints tables, in which words may be bold or dim.
    pub(crate) fn tables(self, text: &str) {
        self.put(&attributed(text));
    }

    /// Prints a line that starts with words of our own, in a colour if one is given.
    pub(crate) fn marked(self, before: &str, mark: &str, colour: Option<Colour>, text: &str) {
        let (before, text) = (plain::line(before), plain::line(text));
        let whole = format!("{before}{mark} {text}");
        let whole = folded(&whole, self.columns(), INDENT).join("\n");
        let text = whole.get(before.len() + mark.len()..).unwrap_or_default();
        self.put(&match colour {
            Some(Colour(code)) => format!("{before}\x1b[{code}m{mark}\x1b[0m{text}\n"),
            None => format!("{whole}\n"),
        });
    }

    /// Replaces the terminal's current line, without ending it.
    pub(crate) fn replace_line(self, text: &str) {
        self.put(&format!("\r\x1b[K{}", plain::line(text)));
    }

    /// Writes and flushes.
    fn put(self, text: &str) {
        match self {
            Stream::Out => output::write(text.as_bytes()),
            Stream::Err => {
                let mut to = stderr().lock();
                let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
            }
        }
    }
}

/// A colour, by the parameter that selects it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Colour(pub(crate) &'static str);

/// Returns the lines of a text on a terminal with so many columns, which would break words; a word that
/// is longer than a line stays whole. Lines after the first start with so many spaces.
pub(crate) fn folded(text: &str, columns: Option<usize>, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.to_owned();
    // In less space than that there is nothing to gain.
    let columns = columns.filter(|columns| *columns >= indent + 20);
    while let Some(columns) = columns.filter(|columns| rest.chars().count() > *columns) {
        // The last space with a whole line before it, or else the first one behind.
        let mut cut = None;
        for (length, (at, character)) in rest.char_indices().enumerate().skip(indent + 1) {
            if length > columns && cut.is_some() {
                break;
            }
            if character == ' ' {
                cut = Some(at);
            }
        }
        let Some((line, after)) = cut.and_then(|at| rest.split_at_checked(at)) else {
            break;
        };
        let after = format!("{:indent$}{}", "", after.trim_start());
        lines.push(line.trim_end().to_owned());
        rest = after;
    }
    lines.push(rest);
    lines
}

/// Returns the text without anything that a terminal would interpret, except [`ATTRIBUTES`].
fn attributed(text: &str) -> String {
    let mut pieces = text.split('\x1b');
    let mut out = plain::lines(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let known = ATTRIBUTES.iter().any(|known| piece.starts_with(known));
        out.push(if known { '\x1b' } else { plain::REPLACEMENT });
        out.push_str(&plain::lines(piece));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_broken() {
        let text = "midair: error: the process has no thread that is at a safe place";
        let lines = folded(text, Some(30), 2);
        assert_eq!(
            lines,
            [
                "midair: error: the process has",
                "  no thread that is at a safe",
                "  place"
            ]
        );
        assert_eq!(folded(text, None, 2), [text]);
        assert_eq!(folded(text, Some(64), 2), [text]);
        // Nothing is gained in a very narrow terminal, and a long word stays whole.
        assert_eq!(folded(text, Some(10), 2), [text]);
        let long = "ok  library  /a/very/long/path/to/a/library/of/midair in use";
        assert_eq!(
            folded(long, Some(40), 13),
            [
                "ok  library  /a/very/long/path/to/a/library/of/midair",
                "             in use"
            ]
        );
        let word = "x".repeat(100);
        assert_eq!(folded(&word, Some(40), 2), [word]);
        assert_eq!(folded("", Some(40), 2), [""]);
    }

    #[test]
    fn tables_keep_their_attributes_and_nothing_else() {
        let text =
            "\x1b[1mKERNEL\x1b[0m\n\x1b]0;title\x07 \x1b[31mx \u{202e}\x1b[2m##\x1b[0m\n\x1b";
        let wanted = "\x1b[1mKERNEL\x1b[0m\n\u{fffd}]0;title\u{fffd} \u{fffd}[31mx \u{fffd}\x1b[2m##\x1b[0m\n\u{fffd}";
        assert_eq!(attributed(text), wanted);
        assert_eq!(attributed("plain\n"), "plain\n");
    }
}
