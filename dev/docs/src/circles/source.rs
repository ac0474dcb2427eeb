//! Finds the paths that a Rust source file names, and understands as much of the language as that
//! needs.

/// What a source file says about modules.
#[derive(Debug, Default)]
pub struct Source {
    /// Paths that may lead to modules of the same crate, as written from the file's own module.
    pub paths: Vec<Vec<String>>,
    /// Names that it re-exports. Their paths are in `paths` as well.
    pub reexports: Vec<Reexport>,
    /// Child modules that only tests have.
    pub test_modules: Vec<String>,
}

/// `pub use path as name;`
#[derive(Debug)]
pub struct Reexport {
    /// The name under which it is re-exported.
    pub name: String,
    /// The path of the re-exported item.
    pub path: Vec<String>,
    /// Whether the file uses the name itself.
    pub used: bool,
}

impl Source {
    /// Reads a source file. Text that is not Rust gives fewer paths but never an error, since the
    /// compiler reports that.
    pub fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
            inline: Vec::new(),
            depth: 0,
            names: Vec::new(),
            source: Self::default(),
        };
        parser.file();
        let Parser {
            names, mut source, ..
        } = parser;
        for reexport in &mut source.reexports {
            reexport.used = names.contains(&reexport.name);
        }
        source
    }
}

/// Returns identifiers, `::`, and single characters of punctuation, without comments, literals and
/// lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut open = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => open += 1,
                        ('*', '/') => open -= 1,
                        _ => {
                            i += 1;
                            continue;
                        }
                    }
                    i += 2;
                    if open == 0 {
                        break;
                    }
                }
            }
            '"' => i = after_string(&chars, i + 1),
            '\'' => {
                let closes = at(i + 1) == '\\' || at(i + 2) == '\'';
                if !closes {
                    // This is a lifetime.
                    i += 1;
                    while is_word(at(i)) {
                        i += 1;
                    }
                } else {
                    i += if at(i + 1) == '\\' { 3 } else { 2 };
                    while i < chars.len() && at(i) != '\'' {
                        i += 1;
                    }
                    i += 1;
                }
            }
            c if is_word(c) => {
                let begin = i;
                while is_word(at(i)) {
                    i += 1;
                }
                let word: String = chars.get(begin..i).unwrap_or_default().iter().collect();
                let may_be_raw = matches!(word.as_str(), "r" | "br" | "cr");
                let hashes = (i..chars.len()).take_while(|j| at(*j) == '#').count();
                if may_be_raw && at(i + hashes) == '"' {
                    i = after_raw_string(&chars, i + hashes + 1, hashes);
                } else if may_be_raw && hashes == 1 {
                    // In r#word, the word follows.
                    i += 1;
                } else if matches!(word.as_str(), "b" | "c") && matches!(at(i), '"' | '\'') {
                    // This is a prefix of the literal that follows.
                } else {
                    tokens.push(word);
                }
            }
            ':' if at(i + 1) == ':' => {
                tokens.push("::".to_owned());
                i += 2;
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                i += 1;
            }
        }
    }
    tokens
}

/// Returns the index behind a string that started before `i`.
fn after_string(chars: &[char], mut i: usize) -> usize {
    while let Some(c) = chars.get(i) {
        match c {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    i
}

/// Returns the index behind a raw string with this many hashes that started before `i`.
fn after_raw_string(chars: &[char], mut i: usize, hashes: usize) -> usize {
    while let Some(c) = chars.get(i) {
        i += 1;
        let follow = chars.iter().skip(i).take_while(|c| **c == '#').count();
        if *c == '"' && follow >= hashes {
            return i + hashes;
        }
    }
    i
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
    /// The inline modules that are open here: the name, and the depth of braces inside.
    inline: Vec<(String, usize)>,
    /// The number of open braces.
    depth: usize,
    /// The paths and names outside of `use`.
    names: Vec<String>,
    source: Source,
}

impl Parser<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn previous(&self) -> &str {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        before.map_or("", String::as_str)
    }

    fn file(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" if self.token(1) == "[" => {
                    if self.attribute() {
                        self.skip_item();
                    }
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    let depth = self.depth;
                    self.inline.retain(|(_, inside)| *inside != depth);
                    self.depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                "mod" if self.token(2) == "{" => {
                    let name = self.token(1).to_owned();
                    self.depth += 1;
                    self.inline.push((name, self.depth));
                    self.at += 3;
                }
                "mod" if self.token(2) == ";" => self.at += 3,
                "pub" if self.token(1) == "(" && self.token(2) == "in" => {
                    while !matches!(self.token(0), ")" | "") {
                        self.at += 1;
                    }
                }
                // This leaves out the `use<'a>` of a bound.
                "use" if self.token(1) != "<" => self.use_item(),
                first if is_name(first) => self.path(),
                _ => self.at += 1,
            }
        }
    }

    /// Skips an attribute, and returns whether it is the `cfg` of tests.
    fn attribute(&mut self) -> bool {
        let begin = self.at;
        self.at += 1;
        self.skip_group();
        let words = self.tokens.get(begin..self.at).unwrap_or_default();
        let is = |index: usize, word: &str| words.get(index).is_some_and(|it| it == word);
        let combined = is(4, "all") && words.iter().any(|word| word == "test");
        let negated = words.iter().any(|word| word == "not");
        is(2, "cfg") && (is(4, "test") || combined && !negated)
    }

    /// Skips the group that opens here, with its closing bracket.
    fn skip_group(&mut self) {
        let mut open = 0_usize;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
    }

    /// Skips an item, field or statement that only tests have.
    fn skip_item(&mut self) {
        let begin = self.at;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "mod" if self.token(2) == ";" => {
                    let name = self.token(1).to_owned();
                    self.source.test_modules.push(name);
                    self.at += 1;
                }
                ";" | "," => {
                    self.at += 1;
                    return;
                }
                "}" => return,
                "{" => {
                    let words = self.tokens.get(begin..self.at).unwrap_or_default();
                    let is_use = words.iter().any(|word| word == "use");
                    self.skip_group();
                    if !is_use {
                        return;
                    }
                }
                "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    fn use_item(&mut self) {
        let exported = matches!(self.previous(), "pub" | ")");
        self.at += 1;
        let mut found = Vec::new();
        self.use_tree(&[], &mut found);
        for (path, name) in found {
            let path = self.seen_from_file(path);
            if exported && self.inline.is_empty() {
                self.source.reexports.push(Reexport {
                    name,
                    path: path.clone(),
                    used: false,
                });
            }
            self.source.paths.push(path);
        }
    }

    /// Reads one tree of a `use`, and finds every path with the name that it gets.
    fn use_tree(&mut self, prefix: &[String], found: &mut Vec<(Vec<String>, String)>) {
        let mut path = prefix.to_vec();
        loop {
            match self.token(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.use_tree(&path, found);
                        if self.token(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    let name = self.token(1).to_owned();
                    self.at += 2;
                    found.push((path, name));
                    return;
                }
                "," | ";" | "}" | "" => {
                    let name = path.last().cloned().unwrap_or_default();
                    found.push((path, name));
                    return;
                }
                // `a::{self}` is `a`.
                "self" if !path.is_empty() => self.at += 1,
                segment => {
                    path.push(segment.to_owned());
                    self.at += 1;
                }
            }
        }
    }

    /// Reads a path in code, or a name.
    fn path(&mut self) {
        let continues = self.previous() == "::";
        let mut path = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && is_name(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        self.names.extend(path.first().cloned());
        if !continues && (path.len() > 1 || self.token(0) == "::") {
            let path = self.seen_from_file(path);
            self.source.paths.push(path);
        }
    }

    /// Turns a path in an inline module into the form that the file's own module would use. A name
    /// that is not of the crate is left as it is.
    fn seen_from_file(&self, path: Vec<String>) -> Vec<String> {
        if self.inline.is_empty()
            || !matches!(path.first().map(String::as_str), Some("self" | "super"))
        {
            return path;
        }
        let supers = path
            .iter()
            .take_while(|segment| *segment == "super")
            .count();
        let open = self.inline.len();
        let inner = self.inline.iter().map(|(name, _)| name.clone());
        let mut whole = vec!["self".to_owned()];
        whole.extend(inner.take(open.saturating_sub(supers)));
        if supers > open {
            whole = vec!["super".to_owned(); supers - open];
        }
        let rest = path
            .iter()
            .filter(|segment| !matches!(segment.as_str(), "self" | "super"));
        whole.extend(rest.cloned());
        whole
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::parse(text);
        source.paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn use_trees_are_unfolded() {
        assert_eq!(
            paths("use crate::{a, b::{self, c as d, e::*}, f::G}; use std::fmt::{Debug};"),
            [
                "crate::a",
                "crate::b",
                "crate::b::c",
                "crate::b::e::*",
                "crate::f::G",
                "std::fmt::Debug"
            ]
        );
    }

    #[test]
    fn paths_in_code_are_found_wherever_they_stand() {
        assert_eq!(
            paths(
                "fn f(x: &'static crate::a::A) -> Vec<super::B> { g::<self::c::D>(<crate::e::E as T>::new(), b'\\'', '{') }"
            ),
            ["crate::a::A", "super::B", "g", "self::c::D", "crate::e::E"]
        );
        assert_eq!(
            paths("pub(in crate::a) fn f() {} pub(crate) fn g() {}"),
            [""; 0]
        );
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = r####"
            // crate::a::A
            /* crate::b /* crate::c */ crate::d */
            //! crate::e::E
            const T: &str = "crate::f::F \" crate::g";
            const R: &str = r#"crate::h " crate::i::I"#;
            const B: &[u8] = b"crate::j::J";
            const C: char = '"';
            fn f() { crate::real::f() }
        "####;
        assert_eq!(paths(text), ["crate::real::f"]);
    }

    #[test]
    fn tests_are_passed_over() {
        let text = "#[cfg(test)] mod tests { use crate::a; fn f() { crate::b::f() } }
            #[cfg(test)] use crate::{c, d::E};
            #[cfg(all(test, unix))] pub fn g(x: [u8; 2]) -> u8 { crate::h::h() }
            #[cfg(test)] mod far;
            #[cfg(not(test))] use crate::i;
            #[derive(Debug)] struct S { #[cfg(test)] x: crate::j::J, y: crate::k::K }";
        assert_eq!(paths(text), ["crate::i", "crate::k::K"]);
        assert_eq!(Source::parse(text).test_modules, ["far"]);
    }

    #[test]
    fn inline_modules_are_part_of_their_file() {
        let text = "mod a { use super::b; mod c { use super::super::super::d; use super::e; } }
            use super::f;";
        assert_eq!(
            paths(text),
            ["self::b", "super::d", "self::a::e", "super::f"]
        );
    }

    #[test]
    fn reexports_know_whether_they_are_used() {
        let source = Source::parse("pub use a::{A, B as C}; use x::D; fn f(c: C) {}");
        let found: Vec<(&str, bool)> = source
            .reexports
            .iter()
            .map(|it| (it.name.as_str(), it.used))
            .collect();
        assert_eq!(found, [("A", false), ("C", true)]);
    }
}
