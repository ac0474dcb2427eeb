//! csv and json outputs.

use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// A csv file: its columns in order, and rows by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csv {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<BTreeMap<String, String>>,
}

impl Csv {
    /// Reads csv text with a header line; fields may be quoted, a quote inside is doubled.
    ///
    /// # Errors
    /// A row with another number of fields than the header, or a quote that is not closed.
    pub fn parse(text: &str) -> Result<Csv> {
        let mut lines = Vec::new();
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    field.push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                '\n' if !quoted => {
                    fields.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut fields));
                }
                '\r' if !quoted && chars.peek() == Some(&'\n') => {}
                c => field.push(c),
            }
        }
        if quoted {
            return Err("a quote is not closed".into());
        }
        if !field.is_empty() || !fields.is_empty() {
            return Err("the last line has no end".into());
        }
        let mut lines = lines.into_iter();
        let columns = lines.next().ok_or("no header line")?;
        let mut rows = Vec::new();
        for (n, line) in lines.enumerate() {
            if line.len() != columns.len() {
                return Err(format!(
                    "row {}: {} fields, {} columns",
                    n + 1,
                    line.len(),
                    columns.len()
                )
                .into());
            }
            rows.push(columns.iter().cloned().zip(line).collect());
        }
        Ok(Csv { columns, rows })
    }
    /// Reads a csv file.
    ///
    /// # Errors
    /// As [`Csv::parse`], with the path.
    pub fn read(path: &Path) -> Result<Csv> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Csv::parse(&text).map_err(|error| format!("{}: {error}", path.display()).into())
    }
    /// A field of a row as a number.
    ///
    /// # Errors
    /// When the column does not exist or does not hold a number.
    pub fn number(row: &BTreeMap<String, String>, column: &str) -> Result<u64> {
        let text = row
            .get(column)
            .ok_or_else(|| format!("no column {column}"))?;
        text.parse()
            .map_err(|_| format!("{column} holds {text}").into())
    }
}

/// Reads a json file.
///
/// # Errors
/// When it cannot be read or is not json, with the path.
pub fn json(path: &Path) -> Result<serde_json::Value> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_line_ends_are_read() {
        let csv = Csv::parse("\"A\",B\n\"x, \"\"y\"\"\nz\",2\r\n,\"\"\n").unwrap();
        assert_eq!(csv.columns, ["A", "B"]);
        assert_eq!(csv.rows[0]["A"], "x, \"y\"\nz");
        assert_eq!(Csv::number(&csv.rows[0], "B").unwrap(), 2);
        assert_eq!((csv.rows.len(), csv.rows[1]["A"].as_str()), (2, ""));
    }

    #[test]
    fn damage_is_refused() {
        for bad in ["", "A,B\n1\n", "A\n\"x\n", "A\n1"] {
            assert!(Csv::parse(bad).is_err(), "{bad:?}");
        }
    }
}
