//! The program `tests/c/calls.c`, which makes API calls on command and counts them itself.

use crate::Result;
use crate::lab::{Lab, LabCommand, LabTarget};
use crate::snapshot::memory;
use crate::target::PATIENCE;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// The running program.
pub struct Caller {
    target: LabTarget,
}

/// Calls by function.
pub type Counts = BTreeMap<String, u64>;

/// The bytes of the program's live tables, by name.
pub type Tables = BTreeMap<String, Vec<u8>>;

impl Caller {
    /// Returns the program, not started yet.
    ///
    /// # Errors
    /// Fails when the program does not compile.
    pub fn command(lab: &Lab) -> Result<LabCommand<'_>> {
        let (program, kernels) = (lab.program("calls")?, lab.kernels()?);
        Ok(lab.run(&program).arg(kernels))
    }

    /// Starts the program and waits until it is ready.
    ///
    /// # Errors
    /// Fails when the program does not become ready.
    pub fn start(command: LabCommand<'_>) -> Result<Caller> {
        let mut target = command.spawn()?;
        target.expect("ready")?;
        Ok(Caller { target })
    }

    /// Sends a command and waits until it is done.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn tell(&mut self, command: &str) -> Result<()> {
        self.send(command)?;
        self.expect(command.split(' ').next().unwrap_or_default())?;
        Ok(())
    }

    /// Returns what the program has called so far.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn counts(&mut self) -> Result<Counts> {
        self.send("counts")?;
        Ok(assignments(&self.expect("counts")?))
    }

    /// Returns the live tables as they are now. The program itself finds them, and they are read
    /// from outside.
    ///
    /// # Errors
    /// Fails when the tables cannot be found or read.
    pub fn tables(&mut self) -> Result<Tables> {
        self.send("tables")?;
        let mut tables = Tables::new();
        loop {
            let line = self.expect("table")?;
            let words: Vec<&str> = line.split(' ').collect();
            let [_, name, at, size] = words[..] else {
                return Ok(tables);
            };
            let bytes = memory(self.pid(), at.parse()?, size.parse()?)?;
            tables.insert(name.to_owned(), bytes);
        }
    }

    /// Ends the program, which must end well.
    ///
    /// AMD's model mode aborts by itself at some exits, whether we have attached or not: the
    /// runtime frees an event that a queue still raises. Only that abort is accepted, with its own
    /// message and after the program's last line.
    ///
    /// # Errors
    /// Returns how the program ended otherwise.
    pub fn quit(mut self) -> Result<()> {
        self.send("quit")?;
        let exit = self.target.target.wait(PATIENCE)?;
        let done = exit.stdout.last().is_some_and(|line| line == "done");
        if done && (exit.status.success() || exit.is_abort_of_amds_model()) {
            Ok(())
        } else {
            Err(exit.to_string().into())
        }
    }
}

impl Deref for Caller {
    type Target = LabTarget;
    fn deref(&self) -> &LabTarget {
        &self.target
    }
}

impl DerefMut for Caller {
    fn deref_mut(&mut self) -> &mut LabTarget {
        &mut self.target
    }
}

/// Returns what was called between two counts, of the functions whose names start so.
pub fn between(before: &Counts, after: &Counts, prefix: &str) -> Counts {
    after
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, count)| (name.clone(), count - before.get(name).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Returns how many slots of each table have changed.
pub fn changed(before: &Tables, after: &Tables) -> BTreeMap<String, usize> {
    let slots = |name: &str| {
        let old = before.get(name).map_or(&[][..], Vec::as_slice).chunks(8);
        let new = after.get(name).map_or(&[][..], Vec::as_slice).chunks(8);
        old.zip(new).filter(|(old, new)| old != new).count()
    };
    before
        .keys()
        .map(|name| (name.clone(), slots(name)))
        .collect()
}

/// Reads `NAME=NUMBER` words of a line.
pub(crate) fn assignments(line: &str) -> Counts {
    line.split_ascii_whitespace()
        .filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_subtracted() {
        let (before, after) = (
            assignments("counts hipA=1 hipB=x hsaC=3 hipD=4"),
            assignments("counts hipA=3 hsaC=5 hipD=4 hipE=7"),
        );
        assert_eq!(before.len(), 3);
        let expected = [("hipA", 2), ("hipE", 7)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(between(&before, &after, "hip"), expected.into());
    }

    #[test]
    fn changed_slots_are_counted() {
        let table = |bytes: [u8; 24]| Tables::from([("t".to_owned(), bytes.to_vec())]);
        let mut other = [0; 24];
        (other[1], other[7], other[23]) = (1, 1, 1);
        assert_eq!(changed(&table([0; 24]), &table(other))["t"], 2);
        assert_eq!(changed(&table([0; 24]), &table([0; 24]))["t"], 0);
    }
}
