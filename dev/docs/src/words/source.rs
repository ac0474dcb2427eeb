//! Comments and string literals of Rust sources, as far as a check of words needs them.

/// The prose of a source file: pairs of a line number and a text.
#[derive(Default)]
pub struct Prose<'a> {
    /// Comments, one line each, without the slashes.
    pub comments: Vec<(usize, &'a str)>,
    /// String literals of several words outside of unit tests. Placeholders and escapes stay in them.
    pub literals: Vec<(usize, &'a str)>,
}

/// Returns the prose of a source file.
pub fn prose(source: &str) -> Prose<'_> {
    let mut found = Prose::default();
    // Unit tests stand last in a file.
    let tests = source.find("\n#[cfg(test)]").unwrap_or(source.len());
    let mut line = 1;
    let mut at = 0;
    while let Some(next) = source.as_bytes().get(at) {
        let rest = &source[at..];
        let length = match next {
            b'/' if rest.starts_with("//") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                let text = rest[..end].trim_start_matches(['/', '!']);
                found.comments.push((line, text));
                end
            }
            b'"' => {
                let text = &rest[1..];
                let end = end_of_text(text);
                if at < tests && text[..end].split_whitespace().count() > 2 {
                    found.literals.push((line, &text[..end]));
                }
                end + 2
            }
            b'r' if is_raw(source, at) => {
                let fence = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
                let close = format!("\"{}", "#".repeat(fence));
                let text = &rest[fence + 2..];
                let end = text.find(&close).unwrap_or(text.len());
                fence + 2 + end + close.len()
            }
            b'\'' => length_of_character(rest),
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        let end = (at + length).min(source.len());
        line += source[at..end].matches('\n').count();
        at = end;
    }
    found
}

/// Whether a raw string starts at this `r`.
fn is_raw(source: &str, at: usize) -> bool {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let before = at.checked_sub(1).and_then(|at| source.as_bytes().get(at));
    // `br` and `cr` are prefixes, too.
    let prefix = matches!(before, Some(b'b' | b'c'));
    let alone = prefix || !before.is_some_and(in_name);
    alone && source[at + 1..].trim_start_matches('#').starts_with('"')
}

/// Returns the length of a string literal's text, which ends at a quote.
fn end_of_text(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn length_of_character(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((at, _))) => rest[at + 1..].find('\'').map_or(1, |end| at + end + 2),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_found_and_other_code_is_not() {
        let source = "//! a head\nfn f<'a>() { // b\n    g('\"', '\\'', \"three \\\" words // no\", r#\"raw \" text\"#, b\"x\");\n}\n/// c\n\
                      #[cfg(test)]\nmod tests { const A: &str = \"words of a test\"; } // d\n";
        let found = prose(source);
        assert_eq!(
            found.comments,
            [(1, " a head"), (2, " b"), (5, " c"), (7, " d")]
        );
        assert_eq!(found.literals, [(3, "three \\\" words // no")]);
    }
}
