//! The command line.

use crate::kit::Amount;
use std::path::PathBuf;

/// The text that explains the command line.
pub const USAGE: &str = "\
midair-torture [--quick] [--row N]... [--cell TEXT]... [--cycles N] [--many N] [--others N | --no-others | --only-others] [--by NAME]... [--note TEXT] [--out DIR] [--docs FILE]
  --quick        a few cycles of each cell, without the others unless --others follows
  --row N        this row of the matrix only (may be repeated)
  --cell TEXT    cells whose name holds TEXT only (may be repeated)
  --cycles N     cycles of each cell (200; row 24: 500, quick: 20)
  --many N       cycles of row 13 (10000)
  --others N     cycles of each of the others, per cell (30)
  --no-others    ours only
  --only-others  the others only
  --by NAME      of the others this one only: gdb, frida, amd, wprof-stand-in (may be repeated)
  --note TEXT    put this line into the head of the table: what else the machine did, say
  --out DIR      write torture.md and torture.json there (bench-results); of the others only: torture-others.*, in which the
                 rows of those that are not named stay as they are
  --docs FILE    put the table between the markers of this page; of the others only: their sums";

/// The contents of the command line.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// How much is done.
    pub amount: Amount,
    rows: Vec<u8>,
    cells: Vec<String>,
    by: Vec<String>,
    /// Whether the other attach methods are run, too.
    pub others: bool,
    /// Whether only the other attach methods are run.
    pub only_others: bool,
    /// Lines for the head of the table.
    pub notes: Vec<String>,
    /// The directory for the table.
    pub out: Option<PathBuf>,
    /// The page of documentation that holds the table.
    pub docs: Option<PathBuf>,
}

impl Arguments {
    /// Reads the command line. Returns `None` when it asks for help.
    ///
    /// # Errors
    /// Returns what is wrong with the command line.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut asked = Arguments {
            amount: Amount {
                cycles: 0,
                many: 0,
                churn: 0,
                starts: 0,
                others: 30,
                quick: false,
            },
            rows: Vec::new(),
            cells: Vec::new(),
            by: Vec::new(),
            others: true,
            only_others: false,
            notes: Vec::new(),
            out: None,
            docs: None,
        };
        let (mut cycles, mut many) = (None, None);
        let mut arguments = arguments;
        while let Some(word) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{word} wants a value"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--quick" => {
                    asked.amount.quick = true;
                    asked.others = false;
                }
                "--row" => asked.rows.push(number(&value()?)?),
                "--cell" => asked.cells.push(value()?),
                "--by" => asked.by.push(value()?),
                "--cycles" => cycles = Some(number(&value()?)?),
                "--many" => many = Some(number(&value()?)?),
                "--others" => {
                    asked.amount.others = number(&value()?)?;
                    asked.others = true;
                }
                "--note" => asked.notes.push(value()?),
                "--no-others" => asked.others = false,
                "--only-others" => asked.only_others = true,
                "--out" => asked.out = Some(value()?.into()),
                "--docs" => asked.docs = Some(value()?.into()),
                other => return Err(format!("{other} is not known")),
            }
        }
        let quick = asked.amount.quick;
        asked.amount.cycles = cycles.unwrap_or(if quick { 3 } else { 200 });
        asked.amount.starts = cycles.unwrap_or(if quick { 4 } else { 60 });
        asked.amount.churn = cycles.unwrap_or(if quick { 20 } else { 500 });
        asked.amount.many = many.unwrap_or(if quick { 30 } else { 10_000 });
        Ok(Some(asked))
    }

    /// Returns whether this one of the other attach methods was asked for.
    pub fn wants_method(&self, name: &str) -> bool {
        self.by.is_empty() || self.by.iter().any(|by| by == name)
    }

    /// Returns which of the others ran, if these are some of them and nothing else ran.
    pub fn part(&self) -> Option<String> {
        (self.only_others && !self.by.is_empty()).then(|| self.by.join(" and "))
    }

    /// Returns whether this cell was asked for.
    pub fn wants(&self, row: u8, name: &str) -> bool {
        (self.rows.is_empty() || self.rows.contains(&row))
            && (self.cells.is_empty() || self.cells.iter().any(|text| name.contains(text)))
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Arguments {
        let arguments = line.split_ascii_whitespace().map(str::to_owned);
        Arguments::parse(arguments).unwrap().unwrap()
    }

    #[test]
    fn rows_and_cells_may_be_repeated() {
        let arguments = asked("--row 3 --row 5 --cell vfork --cell fuse");
        for (row, name, wanted) in [
            (3, "a thread in a fuse wait", true),
            (5, "vfork on 2 threads", true),
            (5, "fork", false),
            (2, "vfork", false),
        ] {
            assert_eq!(arguments.wants(row, name), wanted, "{row} {name}");
        }
        assert!(asked("").wants(7, "anything"));
    }

    #[test]
    fn one_of_the_others() {
        let arguments = asked("--only-others --by amd");
        assert!(arguments.wants_method("amd") && !arguments.wants_method("gdb"));
        assert!(asked("").wants_method("gdb"));
        assert_eq!(arguments.part().as_deref(), Some("amd"));
        assert!(asked("--by amd").part().is_none() && asked("--only-others").part().is_none());
        assert!(!asked("--quick").others && asked("--quick --others 3").others);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let arguments = ["--cell", "--rows"].map(|word| vec![word.to_owned()]);
        assert!(
            arguments
                .into_iter()
                .all(|line| Arguments::parse(line.into_iter()).is_err())
        );
    }
}
