//! Licence expressions (SPDX): names with AND, OR, WITH and brackets.

/// Returns whether an expression can be satisfied by allowed licences alone. An exception belongs
/// to its licence (`Apache-2.0 WITH LLVM-exception`). An expression that cannot be read is not
/// allowed.
pub(super) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Before there were expressions, OR was written as "/".
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().collect();
    words.reverse();
    let mut reader = Reader { words, allowed };
    reader.any() == Some(true) && reader.words.is_empty()
}

struct Reader<'a> {
    /// The words that are left. The last one is the next to be read.
    words: Vec<&'a str>,
    allowed: &'a [String],
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        self.words.pop_if(|next| *next == word).is_some()
    }

    /// Reads terms with OR between them.
    fn any(&mut self) -> Option<bool> {
        let mut good = self.all()?;
        while self.take("OR") {
            good |= self.all()?;
        }
        Some(good)
    }

    /// Reads terms with AND between them, which binds more strongly.
    fn all(&mut self) -> Option<bool> {
        let mut good = self.one()?;
        while self.take("AND") {
            good &= self.one()?;
        }
        Some(good)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let good = self.any()?;
            return self.take(")").then_some(good);
        }
        let mut name = self.words.pop()?.to_owned();
        if matches!(name.as_str(), ")" | "AND" | "OR" | "WITH") {
            return None;
        }
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.words.pop()?);
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_satisfied_by_allowed_licences() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
            "GPL-3.0 AND X OR MIT",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0",
            "MIT WITH Some-exception",
            "(MIT",
            "MIT)",
            "MIT ISC",
            "OR",
            "MIT OR",
            "mit",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
