//! Values of SQLite as text, in the spelling of Python, in which AMD's command is written.

use rusqlite::types::ValueRef;

/// Returns a real number as Python prints it: the fewest digits that are read back as the same
/// number, always with a point or an exponent.
pub(crate) fn real(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return match plain.contains('.') {
            true => plain,
            false => plain + ".0",
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Returns a value for people.
pub(crate) fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "None".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => real(number),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => blob(bytes),
    }
}

/// Returns bytes in hexadecimal, as SQLite writes them.
pub(crate) fn blob(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("X'{digits}'")
}

/// Returns a heading in title case, as AMD's csv has them: each word starts with a capital.
pub(crate) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        match (letter.is_alphabetic(), inside) {
            (true, false) => out.extend(letter.to_uppercase()),
            (true, true) => out.extend(letter.to_lowercase()),
            (false, _) => out.push(letter),
        }
        inside = letter.is_alphabetic();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_numbers_are_spelled_as_in_python() {
        for (number, wanted) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (122_229.0, "122229.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (-2.5e300, "-2.5e+300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(real(number), wanted);
        }
    }

    #[test]
    fn headings_are_in_title_case() {
        for (heading, wanted) in [
            ("agent_abs_index", "Agent_Abs_Index"),
            ("DURATION (nsec)", "Duration (Nsec)"),
            ("COUNT(*)", "Count(*)"),
            ("x2y", "X2Y"),
        ] {
            assert_eq!(title(heading), wanted);
        }
    }
}
