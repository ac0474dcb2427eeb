//! The subset of YAML in which files of counters are written: maps and lists, as blocks and in
//! brackets; texts that are plain, quoted, folded or literal; and comments. Anchors, tags and
//! directives are refused with their line number. JSON is read, too.

use super::Unreadable;

/// How deep maps and lists may be nested.
const DEPTH: u32 = 64;

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Nothing.
    Null,
    /// A text or a number.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A map in its order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Returns the value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Returns a text.
    pub fn scalar(&self) -> Option<&str> {
        match self {
            Node::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a key of a map.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.scalar()
    }
}

/// Reads a document.
///
/// # Errors
/// When the text is not YAML, or not the subset of it that is read here. The error has the line
/// number.
pub fn parse(text: &str) -> Result<Node, Unreadable> {
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let content = line.trim_start_matches(' ');
        lines.push(Line {
            number: n + 1,
            indent: line.len() - content.len(),
            text: content.trim_end(),
        });
    }
    let mut reader = Reader {
        lines,
        at: 0,
        depth: 0,
    };
    let Some(first) = reader.peek() else {
        return Ok(Node::Null);
    };
    let indent = first.indent;
    let node = reader.block(indent)?;
    match reader.peek() {
        Some(line) => Err(error(&line, "unexpected indentation")),
        None => Ok(node),
    }
}

#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

struct Reader<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
    depth: u32,
}

fn error(line: &Line<'_>, what: &'static str) -> Unreadable {
    Unreadable::Yaml {
        line: line.number,
        what,
    }
}

/// Returns a plain text without its comment.
fn plain(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    let end = text.find(" #").unwrap_or(text.len());
    text.get(..end).unwrap_or(text).trim_end()
}

/// Returns key and rest of `key: value`; None where the line is not of this form.
fn key_of(text: &str) -> Option<(String, &str)> {
    if let Some(quote) = text.chars().next().filter(|c| ['"', '\''].contains(c)) {
        let (key, rest) = quoted(text, quote)?;
        let rest = rest.trim_start().strip_prefix(':')?;
        return (rest.is_empty() || rest.starts_with(' ')).then(|| (key, rest.trim_start()));
    }
    let text_end = plain(text).len();
    let (key, rest) = match text.find(": ") {
        Some(at) if at < text_end => (text.get(..at)?, text.get(at + 2..)?),
        _ => (plain(text).strip_suffix(':')?, ""),
    };
    let is_key = !key.is_empty() && !key.starts_with(['[', '{', '-', '?', '&', '*', '!']);
    is_key.then(|| (key.trim_end().to_owned(), rest.trim_start()))
}

/// Returns a quoted text, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == quote) {
                out.push(quote);
                chars.next();
                continue;
            }
            return Some((out, text.get(at + 1..)?));
        }
        if quote == '"' && c == '\\' {
            let (_, escaped) = chars.next()?;
            out.push(match escaped {
                'n' => '\n',
                't' => '\t',
                other => other,
            });
            continue;
        }
        out.push(c);
    }
    None
}

impl<'a> Reader<'a> {
    /// Returns the next line that is not empty.
    fn peek(&mut self) -> Option<Line<'a>> {
        loop {
            let line = *self.lines.get(self.at)?;
            let is_mark = line.indent == 0 && (line.text == "---" || line.text == "...");
            if !line.text.is_empty() && !line.text.starts_with('#') && !is_mark {
                return Some(line);
            }
            self.at += 1;
        }
    }

    /// Replaces the current line by its rest, as if the rest stood on a line of its own.
    fn go_on_with(&mut self, line: Line<'a>, rest: &'a str) {
        let indent = line.indent + (line.text.len() - rest.len());
        if let Some(here) = self.lines.get_mut(self.at) {
            *here = Line {
                number: line.number,
                indent,
                text: rest,
            };
        }
    }

    /// Reads the node that starts on the next line with this indentation.
    fn block(&mut self, indent: usize) -> Result<Node, Unreadable> {
        let Some(line) = self.peek() else {
            return Ok(Node::Null);
        };
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(error(&line, "nested too deep"));
        }
        if line.text.starts_with('\t') {
            return Err(error(&line, "a tab instead of spaces"));
        }
        let node = if line.text == "-" || line.text.starts_with("- ") {
            self.list(indent)
        } else if key_of(line.text).is_some() {
            self.map(indent)
        } else {
            self.at += 1;
            self.value(line, line.text, indent.saturating_sub(1))
        };
        self.depth -= 1;
        node
    }

    fn list(&mut self, indent: usize) -> Result<Node, Unreadable> {
        let mut items = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent != indent || !(line.text == "-" || line.text.starts_with("- ")) {
                break;
            }
            let rest = line.text.get(1..).unwrap_or_default().trim_start();
            if plain(rest).is_empty() {
                self.at += 1;
                let inner = self.peek().filter(|next| next.indent > indent);
                items.push(match inner {
                    Some(inner) => self.block(inner.indent)?,
                    None => Node::Null,
                });
            } else {
                self.go_on_with(line, rest);
                let inner = line.indent + (line.text.len() - rest.len());
                items.push(self.block(inner)?);
            }
        }
        Ok(Node::List(items))
    }

    fn map(&mut self, indent: usize) -> Result<Node, Unreadable> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent != indent {
                break;
            }
            let Some((key, rest)) = key_of(line.text) else {
                return Err(error(&line, "no key"));
            };
            if entries.iter().any(|(known, _)| *known == key) {
                return Err(error(&line, "duplicate key"));
            }
            self.at += 1;
            let value = if plain(rest).is_empty() {
                match self.peek() {
                    Some(next) if next.indent > indent => self.block(next.indent)?,
                    // A list may be indented as little as its key.
                    Some(next)
                        if next.indent == indent
                            && (next.text == "-" || next.text.starts_with("- ")) =>
                    {
                        self.list(indent)?
                    }
                    _ => Node::Null,
                }
            } else {
                self.value(line, rest, indent)?
            };
            entries.push((key, value));
        }
        Ok(Node::Map(entries))
    }

    /// Reads a value that starts with `rest` on a line that was already consumed. It may continue
    /// on lines that are indented further than `indent`.
    fn value(&mut self, line: Line<'a>, rest: &str, indent: usize) -> Result<Node, Unreadable> {
        match rest.chars().next() {
            Some('[' | '{') => self.brackets(line, rest),
            Some(quote @ ('"' | '\'')) => {
                let mut text = rest.to_owned();
                loop {
                    if let Some((value, after)) = quoted(&text, quote) {
                        return match plain(after.trim_start()) {
                            "" => Ok(Node::Scalar(value)),
                            _ => Err(error(&line, "unexpected text after a quoted string")),
                        };
                    }
                    let Some(next) = self.lines.get(self.at) else {
                        return Err(error(&line, "unterminated quoted string"));
                    };
                    self.at += 1;
                    text.push(' ');
                    text.push_str(next.text);
                }
            }
            Some('|' | '>') => Ok(self.literal(rest.starts_with('>'), indent)),
            Some('&' | '*' | '!' | '%' | '@' | '`') => Err(error(
                &line,
                "anchors, tags and directives are not supported",
            )),
            _ => {
                let mut text = plain(rest).to_owned();
                while let Some(next) = self.peek() {
                    if next.indent <= indent {
                        break;
                    }
                    if key_of(next.text).is_some() {
                        return Err(error(&next, "a key inside a continued text"));
                    }
                    self.at += 1;
                    text.push(' ');
                    text.push_str(plain(next.text));
                }
                Ok(match text.as_str() {
                    "~" | "null" => Node::Null,
                    _ => Node::Scalar(text),
                })
            }
        }
    }

    /// Reads the lines that are indented further, as they are or folded into one.
    fn literal(&mut self, folded: bool, indent: usize) -> Node {
        let mut text: Vec<&str> = Vec::new();
        while let Some(next) = self.lines.get(self.at) {
            if next.indent <= indent && !next.text.is_empty() {
                break;
            }
            text.push(next.text);
            self.at += 1;
        }
        while text.last().is_some_and(|line| line.is_empty()) {
            text.pop();
        }
        Node::Scalar(text.join(if folded { " " } else { "\n" }))
    }

    /// Reads a list or a map in brackets, over as many lines as it takes.
    fn brackets(&mut self, line: Line<'a>, rest: &str) -> Result<Node, Unreadable> {
        let mut text = rest.to_owned();
        loop {
            let mut flow = Flow {
                rest: &text,
                depth: self.depth,
            };
            match flow.node() {
                Ok(node) => {
                    return match plain(flow.rest.trim_start()) {
                        "" => Ok(node),
                        _ => Err(error(&line, "unexpected text after the brackets")),
                    };
                }
                Err(Some(what)) => return Err(error(&line, what)),
                Err(None) => {}
            }
            let Some(next) = self.peek() else {
                return Err(error(&line, "unclosed brackets"));
            };
            self.at += 1;
            text.push('\n');
            text.push_str(next.text);
        }
    }
}

/// Reads what is in brackets. An error is None where the text ends too early.
struct Flow<'a> {
    rest: &'a str,
    depth: u32,
}

type Flowing<T> = Result<T, Option<&'static str>>;

impl Flow<'_> {
    fn space(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.split_once('\n').map_or("", |(_, after)| after);
        }
    }

    fn takes(&mut self, c: char) -> bool {
        self.space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn node(&mut self) -> Flowing<Node> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Some("nested too deep"));
        }
        let node = if self.takes('[') {
            self.list()
        } else if self.takes('{') {
            self.map()
        } else {
            self.scalar().map(Node::Scalar)
        };
        self.depth -= 1;
        node
    }

    fn list(&mut self) -> Flowing<Node> {
        let mut items = Vec::new();
        while !self.takes(']') {
            items.push(self.node()?);
            if !self.takes(',') {
                return self.closes(']').map(|()| Node::List(items));
            }
        }
        Ok(Node::List(items))
    }

    fn map(&mut self) -> Flowing<Node> {
        let mut entries = Vec::new();
        while !self.takes('}') {
            let key = self.scalar()?;
            let value = if self.takes(':') {
                self.node()?
            } else {
                Node::Null
            };
            entries.push((key, value));
            if !self.takes(',') {
                return self.closes('}').map(|()| Node::Map(entries));
            }
        }
        Ok(Node::Map(entries))
    }

    fn closes(&mut self, bracket: char) -> Flowing<()> {
        if self.takes(bracket) {
            Ok(())
        } else if self.rest.is_empty() {
            Err(None)
        } else {
            Err(Some("a comma or a bracket is missing"))
        }
    }

    fn scalar(&mut self) -> Flowing<String> {
        self.space();
        let Some(first) = self.rest.chars().next() else {
            return Err(None);
        };
        if first == '"' || first == '\'' {
            let (text, rest) = quoted(self.rest, first).ok_or(None)?;
            self.rest = rest;
            return Ok(text);
        }
        let ends = |(at, c): (usize, char)| {
            let after = self.rest.get(at + 1..).and_then(|rest| rest.chars().next());
            let colon = c == ':' && after.is_none_or(|c| c.is_whitespace() || c == ',');
            [',', ']', '}', '[', '{', '\n'].contains(&c) || colon
        };
        let mut chars = self.rest.char_indices();
        let end = chars.find(|at| ends(*at)).ok_or(None)?.0;
        let (text, rest) = self.rest.split_at(end);
        if text.trim().is_empty() {
            return Err(Some("a value is missing"));
        }
        self.rest = rest;
        Ok(text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> Node {
        Node::Scalar(text.into())
    }

    fn map<const N: usize>(entries: [(&str, Node); N]) -> Node {
        Node::Map(entries.map(|(k, v)| (k.to_owned(), v)).into())
    }

    fn read(text: &str) -> Node {
        parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn blocks_of_maps_and_lists() {
        let text = "\
---
# A comment
a:
  b: 1   # one
  c:
  - x
  -
    y: 2
    z:
      - - p
        - q
      - r
d:
    - e: f
      g: h#i
j:
...
";
        let expected = map([
            (
                "a",
                map([
                    ("b", scalar("1")),
                    (
                        "c",
                        Node::List(vec![
                            scalar("x"),
                            map([
                                ("y", scalar("2")),
                                (
                                    "z",
                                    Node::List(vec![
                                        Node::List(vec![scalar("p"), scalar("q")]),
                                        scalar("r"),
                                    ]),
                                ),
                            ]),
                        ]),
                    ),
                ]),
            ),
            (
                "d",
                Node::List(vec![map([("e", scalar("f")), ("g", scalar("h#i"))])]),
            ),
            ("j", Node::Null),
        ]);
        assert_eq!(read(text), expected);
        assert_eq!(read(""), Node::Null);
        assert_eq!(read("# nothing\n"), Node::Null);
    }

    #[test]
    fn texts_of_all_kinds() {
        let text = "\
a: 'it''s: # one'  # a comment
b: \"a \\\"b\\\" \\n c\"
c: reduce(X,sum) * (Y -
  Z)
d: >-
  folded
  lines

e: |
  as they
  are
f: 'over
  two lines'
'g h': http://x
i: ~
";
        let expected = map([
            ("a", scalar("it's: # one")),
            ("b", scalar("a \"b\" \n c")),
            ("c", scalar("reduce(X,sum) * (Y - Z)")),
            ("d", scalar("folded lines")),
            ("e", scalar("as they\nare")),
            ("f", scalar("over two lines")),
            ("g h", scalar("http://x")),
            ("i", Node::Null),
        ]);
        assert_eq!(read(text), expected);
    }

    #[test]
    fn brackets_on_one_line_and_on_many() {
        let text = "a: [b, 'c, d', [e], {f: g, h}, ]\ni: {j: [k,\n  l], # more\n  \"m\": n}\no: []\np: {}\n";
        let expected = map([
            (
                "a",
                Node::List(vec![
                    scalar("b"),
                    scalar("c, d"),
                    Node::List(vec![scalar("e")]),
                    map([("f", scalar("g")), ("h", Node::Null)]),
                ]),
            ),
            (
                "i",
                map([
                    ("j", Node::List(vec![scalar("k"), scalar("l")])),
                    ("m", scalar("n")),
                ]),
            ),
            ("o", Node::List(vec![])),
            ("p", map([])),
        ]);
        assert_eq!(read(text), expected);
        let json = "{\n \"a\": [\"b\", 1],\n \"c\": {\"d\": \"e\"}\n}\n";
        let expected = map([
            ("a", Node::List(vec![scalar("b"), scalar("1")])),
            ("c", map([("d", scalar("e"))])),
        ]);
        assert_eq!(read(json), expected);
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_line() {
        for (text, line) in [
            ("a: &b c\n", 1),
            ("a: 1\nb: *c\n", 2),
            ("a: !!str b\n", 1),
            ("a: 1\n  b: 2\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: 'b\n", 1),
            ("a: 'b' c\n", 1),
            ("a: [b\n", 1),
            ("a: [b] c\n", 1),
            ("a: [b c: d: e]]\n", 1),
            ("a: [,]\n", 1),
            ("a:\n\t- b\n", 2),
            ("a:\n  b: 1\n c: 2\n", 3),
            ("a: 1\nb\n", 2),
            ("- a\nb: c\n", 2),
        ] {
            match parse(text) {
                Err(Unreadable::Yaml { line: at, .. }) => assert_eq!(at, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let deep = "[".repeat(100_000);
        assert!(parse(&format!("a: {deep}")).is_err());
        let deep: String = (0..200).map(|n| " ".repeat(n) + "a:\n").collect();
        assert!(parse(&deep).is_err());
        let deep = "- ".repeat(100_000);
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn no_text_makes_it_fail_otherwise() {
        // Take each start of a real file, and the file without each of its lines: the result is
        // an error or a document, never a panic.
        let text = "a:\n- b: 'c'\n  d: [e, {f: \"g\"}]\n  h: >\n    i\n- \"j\": |\n    k\n";
        for end in 0..text.len() {
            let _ = parse(&text[..end]);
        }
        for c in ["[", "{", "'", "\"", "-", ":", "#", "\u{e4}", "\t", " ", "|"] {
            for at in 0..text.len() {
                let mut changed = text.to_owned();
                changed.insert_str(at, c);
                let _ = parse(&changed);
            }
        }
    }
}
