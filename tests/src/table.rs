//! Readers for csv and json output.

use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// A csv file: its columns in order, and its rows by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csv {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<BTreeMap<String, String>>,
}

impl Csv {
    /// Reads csv text with a header line. Fields may be quoted, and a quote inside them is doubled.
    ///
    /// # Errors
    /// Fails where a row has another number of fields than the header, or where a quote is not
    /// closed.
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
    /// Fails as [`Csv::parse`] does, with the path in the message.
    pub fn read(path: &Path) -> Result<Csv> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Csv::parse(&text).map_err(|error| format!("{}: {error}", path.display()).into())
    }
    /// Returns a field of a row as a number.
    ///
    /// # Errors
    /// Fails when the column does not exist or does not hold a number.
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
/// Fails when the file cannot be read or is not json, with the path in the message.
pub fn json(path: &Path) -> Result<serde_json::Value> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Reads the data of a page of the format html.
///
/// # Errors
/// When it cannot be read or has no data, with the path.
pub fn page(path: &Path) -> Result<serde_json::Value> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let data = text
        .split_once("<script type=\"application/json\" id=\"data\">")
        .and_then(|(_, data)| data.split_once("</script>"));
    let (data, _) = data.ok_or_else(|| format!("{} has no data", path.display()))?;
    serde_json::from_str(data).map_err(|error| format!("{}: {error}", path.display()).into())
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
