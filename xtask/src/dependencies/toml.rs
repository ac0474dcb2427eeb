//! As much of TOML as rules, advisories and lock files use: tables, texts, lists, inline tables.

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<Value>),
    /// An inline table.
    Table(Vec<(String, Value)>),
    /// A number, a truth value, a date.
    Other(String),
}

/// The keys of a document, with the names of their tables before them (`table.key`).
#[derive(Debug, Default)]
pub(super) struct Document {
    entries: Vec<(String, Value)>,
}

impl Document {
    /// Reads what it knows; a line that is none of it is left out.
    pub(super) fn parse(text: &str) -> Document {
        let mut document = Document::default();
        let mut table = String::new();
        let mut reader = Reader { rest: text };
        loop {
            reader.skip_blank();
            if reader.rest.is_empty() {
                return document;
            }
            if let Some(header) = reader.header() {
                table = header;
            } else if let Some((key, value)) = reader.pair() {
                let name = match table.as_str() {
                    "" => key,
                    table => format!("{table}.{key}"),
                };
                document.entries.push((name, value));
            } else {
                reader.skip_line();
            }
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        let found = self.entries.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::Text(text) | Value::Other(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The texts of a list. Of an inline table its first text counts, such as the name in
    /// `{ crate = "x" }`.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let Some(Value::List(list)) = self.value(name) else {
            return Vec::new();
        };
        list.iter().filter_map(Value::first_text).collect()
    }
}

impl Value {
    fn first_text(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Table(entries) => entries.iter().find_map(|(_, value)| value.first_text()),
            Value::List(_) | Value::Other(_) => None,
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// Blanks, ends of lines and comments.
    fn skip_blank(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            self.skip_line();
        }
    }

    fn skip_line(&mut self) {
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
    }

    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        if let Some(rest) = rest {
            self.rest = rest;
        }
        rest.is_some()
    }

    /// `[name]` or `[[name]]`.
    fn header(&mut self) -> Option<String> {
        let line = self.rest.lines().next()?;
        let name = line.strip_prefix('[')?.trim_start_matches('[');
        let (name, _) = name.split_once(']')?;
        let name = name.trim().to_owned();
        self.skip_line();
        Some(name)
    }

    /// `key = value`.
    fn pair(&mut self) -> Option<(String, Value)> {
        let (key, rest) = self.rest.split_once('=')?;
        if key.contains('\n') {
            return None;
        }
        self.rest = rest;
        let value = self.value()?;
        Some((key.trim().trim_matches('"').to_owned(), value))
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_blank();
        if self.take("\"\"\"") {
            let (text, rest) = self.rest.split_once("\"\"\"")?;
            self.rest = rest;
            return Some(Value::Text(text.to_owned()));
        }
        if self.take("\"") {
            return Some(Value::Text(self.quoted()?));
        }
        if self.take("'") {
            let (text, rest) = self.rest.split_once('\'')?;
            self.rest = rest;
            return Some(Value::Text(text.to_owned()));
        }
        if self.take("[") {
            return self.until("]", |reader| reader.value()).map(Value::List);
        }
        if self.take("{") {
            return self.until("}", |reader| reader.pair()).map(Value::Table);
        }
        let end = self.rest.find([',', ']', '}', '\n', '#']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let word = word.trim();
        (!word.is_empty()).then(|| Value::Other(word.to_owned()))
    }

    /// Up to the closing quotation mark.
    fn quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = self.rest.get(at + 1..)?;
                    return Some(text);
                }
                '\\' => text.push(letters.next()?.1),
                _ => text.push(letter),
            }
        }
        None
    }

    /// Items with commas between them.
    fn until<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut items = Vec::new();
        loop {
            self.skip_blank();
            if self.take(end) {
                return Some(items);
            }
            items.push(item(self)?);
            self.skip_blank();
            let _last_has_none = self.take(",");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lists_and_inline_tables_are_read() {
        let document = Document::parse(
            "top = 1\n# words\n[a] # more\nlist = [\n  \"x\", # one\n  'y',\n]\n\
             deny = [{ crate = \"c\", why = \"w\" }, \"d\"]\nyes = true\n[a.b]\ntext = \"q\\\"r\"\n",
        );
        assert_eq!(document.text("top").as_deref(), Some("1"));
        assert_eq!(document.texts("a.list"), ["x", "y"]);
        assert_eq!(document.texts("a.deny"), ["c", "d"]);
        assert_eq!(document.text("a.yes").as_deref(), Some("true"));
        assert_eq!(document.text("a.b.text").as_deref(), Some("q\"r"));
        assert_eq!(document.text("a.none"), None);
    }

    #[test]
    fn what_is_no_toml_ends() {
        for text in [
            "[",
            "a = [",
            "a = {",
            "a = \"",
            "= ",
            "x\ny",
            "a = [1,,]",
            "a = [}]",
        ] {
            let _ = Document::parse(text);
        }
    }
}
