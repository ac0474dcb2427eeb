//! Tables drawn with lines, as in the terminal output of AMD's tool.

/// On which side the fields of a column are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Draws a table.
pub fn draw(headings: &[String], rows: &[Vec<String>], sides: &[Side]) -> String {
    let clean = |text: &String| midair_failure::plain::line(text).into_owned();
    let headings: Vec<String> = headings.iter().map(clean).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(clean).collect())
        .collect();
    let length = |text: &String| text.chars().count();
    let mut widths: Vec<usize> = headings.iter().map(length).collect();
    for row in &rows {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(field));
        }
    }
    let rule = |left: char, line: char, cross: char, right: char| {
        let parts: Vec<String> = widths
            .iter()
            .map(|width| line.to_string().repeat(width + 2))
            .collect();
        format!("{left}{}{right}\n", parts.join(&cross.to_string()))
    };
    let fields = |row: &[String]| {
        let mut out = String::from("│");
        for (column, width) in widths.iter().enumerate() {
            let field = row.get(column).map_or("", String::as_str);
            let space = " ".repeat(width - field.chars().count());
            match sides.get(column) {
                Some(Side::Right) => out.push_str(&format!(" {space}{field} │")),
                _ => out.push_str(&format!(" {field}{space} │")),
            }
        }
        out.push('\n');
        out
    };
    let mut out = rule('╒', '═', '╤', '╕');
    out.push_str(&fields(&headings));
    out.push_str(&rule('╞', '═', '╪', '╡'));
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            out.push_str(&rule('├', '─', '┼', '┤'));
        }
        out.push_str(&fields(row));
    }
    out.push_str(&rule('╘', '═', '╧', '╛'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_lines_around_its_fields_and_no_control_characters() {
        let word = |text: &str| text.to_owned();
        let drawn = draw(
            &[word("Metric"), word("Avg")],
            &[
                vec![word("a\x1b[2J"), word("1.00")],
                vec![word("ä"), word("-12.50")],
            ],
            &[Side::Left, Side::Right],
        );
        assert_eq!(
            drawn,
            "╒════════╤════════╕\n\
             │ Metric │    Avg │\n\
             ╞════════╪════════╡\n\
             │ a\u{fffd}[2J  │   1.00 │\n\
             ├────────┼────────┤\n\
             │ ä      │ -12.50 │\n\
             ╘════════╧════════╛\n"
        );
    }
}
