//! Access to rules, advisories and lock files by the names of their keys.

use toml::{Table, Value};

/// A TOML document.
#[derive(Debug)]
pub(super) struct Document(Table);

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// Returns what is wrong in it, and where.
    pub(super) fn parse(text: &str) -> Result<Document, String> {
        text.parse()
            .map(Document)
            .map_err(|error| error.to_string())
    }

    /// Returns the value of a key, whose name includes its tables' names: `table.key`.
    fn value(&self, name: &str) -> Option<&Value> {
        let (tables, key) = name.rsplit_once('.').unwrap_or(("", name));
        let mut table = &self.0;
        for part in tables.split('.').filter(|part| !part.is_empty()) {
            table = table.get(part)?.as_table()?;
        }
        table.get(key)
    }

    /// Returns a value of any kind as text. Dates and numbers are as they are written.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        let text = value.as_str().map(str::to_owned);
        Some(text.unwrap_or_else(|| value.to_string()))
    }

    /// Returns the texts of a list.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let list = self.value(name).and_then(Value::as_array);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        list.into_iter().flatten().filter_map(text).collect()
    }

    /// Returns the tables of an array of tables (`[[name]]`).
    pub(super) fn tables(&self, name: &str) -> impl Iterator<Item = &Table> {
        let list = self.value(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let document = Document::parse(
            "top = 1\n[a]\nlist = [\"x\", 'y']\nyes = true\nday = 2026-11-23\n[a.b]\ntext = \"q\\\"r\"\n[[many]]\nname = \"one\"\n",
        )
        .unwrap();
        assert_eq!(document.text("top").as_deref(), Some("1"));
        assert_eq!(document.texts("a.list"), ["x", "y"]);
        assert_eq!(document.text("a.yes").as_deref(), Some("true"));
        assert_eq!(document.text("a.day").as_deref(), Some("2026-11-23"));
        assert_eq!(document.text("a.b.text").as_deref(), Some("q\"r"));
        assert_eq!(document.text("a.none"), None);
        assert_eq!(document.tables("many").count(), 1);
    }

    #[test]
    fn what_is_no_toml_is_refused() {
        for text in ["[", "a = [", "a = {", "a = \"", "= ", "x\ny", "a = [}]"] {
            assert!(Document::parse(text).is_err(), "{text}");
        }
    }
}
