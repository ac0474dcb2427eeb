//! Edits of a text: insertions around parts of it, which nest, and replacements.

use crate::Point;

/// Where the lines of a text start.
pub struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub fn of(text: &'a str) -> Lines<'a> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Lines {
            text,
            begins: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// Returns the byte at a point.
    pub fn byte(&self, point: Point) -> usize {
        let begin = self.begins[point.line - 1];
        let line = &self.text[begin..];
        line.char_indices()
            .nth(point.column - 1)
            .map_or(self.text.len(), |(at, _)| begin + at)
    }
}

/// Text before and behind a part of the file, and replacements inside it.
#[derive(Debug)]
pub struct Around {
    pub begin: usize,
    pub end: usize,
    pub before: String,
    pub behind: String,
    /// Among parts of the same extent, the one with the lower number is outside.
    pub level: u32,
    /// A range that is replaced, as an operator is.
    pub instead: Option<(usize, usize, String)>,
}

/// Makes all edits.
pub fn apply(text: &str, edits: Vec<Around>) -> Result<String, String> {
    // (place, what comes first, order, end of what is replaced, text)
    let mut pieces: Vec<(usize, u8, (i64, i64), usize, String)> = Vec::new();
    for edit in edits {
        let length = (edit.end - edit.begin) as i64;
        let level = i64::from(edit.level);
        if let Some((from, to, with)) = edit.instead {
            pieces.push((from, 2, (0, 0), to, with));
        }
        // Behind a part: the inner one first. Before a part: the outer one first.
        pieces.push((edit.end, 0, (length, -level), edit.end, edit.behind));
        pieces.push((edit.begin, 1, (-length, level), edit.begin, edit.before));
    }
    pieces.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    let mut changed = String::with_capacity(2 * text.len());
    let mut at = 0;
    for (from, _, _, to, with) in pieces {
        if from < at {
            return Err(format!("an edit at byte {from} is inside another"));
        }
        changed.push_str(&text[at..from]);
        changed.push_str(&with);
        at = to;
    }
    changed.push_str(&text[at..]);
    Ok(changed)
}
