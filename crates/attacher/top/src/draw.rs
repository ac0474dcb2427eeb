//! Lines with a tone, and how they are drawn on a terminal.

use crate::view::{Look, View};
use midair_failure::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// The role of a line, which decides its colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// The head of a table.
    Head,
    /// Less important.
    Dim,
    /// What the GPU does.
    Good,
    /// What the user should look at.
    Bad,
    /// The line that is marked.
    Marked,
}

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

impl Line {
    pub(crate) fn new(tone: Tone, text: String) -> Line {
        Line { tone, text }
    }

    pub(crate) fn empty() -> Line {
        Line::new(Tone::Plain, String::new())
    }
}

/// Returns a bar of this many columns, of which a share is full.
pub(crate) fn bar(share: f64, columns: usize, unicode: bool) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    let letter = if unicode { "█" } else { "#" };
    letter.repeat(full)
}

fn style(tone: Tone, look: Look) -> Style {
    let coloured = |style: Style, colour: Color| match look.colour {
        true => style.fg(colour),
        false => style,
    };
    let style = Style::new();
    match tone {
        Tone::Plain => style,
        Tone::Head => style.add_modifier(Modifier::BOLD),
        Tone::Dim => style.add_modifier(Modifier::DIM),
        Tone::Good => coloured(style, Color::Green),
        Tone::Bad => coloured(style.add_modifier(Modifier::BOLD), Color::Red),
        Tone::Marked => style.add_modifier(Modifier::REVERSED),
    }
}

/// Returns the text without anything that the terminal would interpret, and in ASCII where the
/// terminal supports nothing else.
fn shown(text: &str, look: Look) -> String {
    let letter = |c: char| match c {
        c if plain::is_obeyed(c) => '?',
        c if !look.unicode && !c.is_ascii() => '?',
        c => c,
    };
    text.chars().map(letter).collect()
}

impl View {
    /// Puts the screen into a buffer.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let lines = self.lines(usize::from(area.width), usize::from(area.height));
        for (row, line) in (area.y..area.bottom()).zip(&lines) {
            let style = style(line.tone, self.look);
            let text = shown(&line.text, self.look);
            buffer.set_stringn(area.x, row, text, usize::from(area.width), style);
        }
    }

    /// Returns the screen as text with lines of at most `columns` columns, and any number of lines.
    pub fn text(&self, columns: usize) -> String {
        let columns = columns.clamp(40, 400);
        let mut out = String::new();
        for line in self.body(columns, usize::MAX) {
            let text: String = shown(&line.text, self.look).chars().take(columns).collect();
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}
