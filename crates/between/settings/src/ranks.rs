//! Which MPI rank a process has, by the variables of its launcher, and which ranks are recorded.

use crate::Settings;
use std::collections::BTreeSet;

/// The variable with the ranks to record.
pub const RANKS: &str = "ROCPROF_MPI_RANKS";
/// The variable with the name of the variable that holds the rank.
pub const RANK_VARIABLE: &str = "ROCPROF_MPI_RANK_VAR";
/// The variable with the name of the variable that holds the number of ranks.
pub const SIZE_VARIABLE: &str = "ROCPROF_MPI_SIZE_VAR";

/// The variables of launchers, for the rank and for the number of ranks, in AMD's order
/// (`docs/sources.md#rocprofv3`). Both have to be there.
const LAUNCHERS: [(&str, &str); 8] = [
    ("PBS_NODENUM", "PBS_O_TASKNUM"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_RANKID", "MPI_NRANKS"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MPI_RANK", "MPI_SIZE"),
];

/// The most ranks that are named at once.
const MOST: u64 = 1 << 24;

/// A process's place among the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Its number, from 0, where it is known.
    pub rank: Option<u64>,
    /// How many there are, where it is known.
    pub size: Option<u64>,
    /// The variables that tell both.
    pub variables: (String, String),
}

/// Whether a process is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The process's place, if a launcher's variables are there.
    pub rank: Option<Rank>,
    /// False where ranks are named and this process's is none of them. A process whose rank is not
    /// known is recorded.
    pub is_recorded: bool,
}

impl Settings {
    /// Decides whether the process with this environment is recorded.
    ///
    /// # Errors
    /// What is wrong with the ranks, with the variables' names, or with their values.
    pub fn rank_choice(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Choice, String> {
        let rank = self.rank(&environment)?;
        let Some(wanted) = self.text(RANKS).map(numbers).transpose()? else {
            return Ok(Choice {
                rank,
                is_recorded: true,
            });
        };
        let (number, size) = rank.as_ref().map_or((None, None), |it| (it.rank, it.size));
        if number.is_some()
            && let (Some(size), Some(last)) = (size, wanted.last())
            && *last >= size
        {
            return Err(format!(
                "rank {last} is out of range: there are {size} ranks, 0 to {}",
                size.saturating_sub(1)
            ));
        }
        Ok(Choice {
            rank,
            is_recorded: number.is_none_or(|number| wanted.contains(&number)),
        })
    }

    fn rank(&self, environment: &impl Fn(&str) -> Option<String>) -> Result<Option<Rank>, String> {
        let number = |name: &str| match environment(name) {
            None => Ok(None),
            Some(text) => text
                .trim()
                .parse()
                .map(Some)
                .map_err(|_| format!("{name}={text} is not a number")),
        };
        let of = |rank: &str, size: &str| {
            Ok(Some(Rank {
                rank: number(rank)?,
                size: number(size)?,
                variables: (rank.to_owned(), size.to_owned()),
            }))
        };
        match (self.text(RANK_VARIABLE), self.text(SIZE_VARIABLE)) {
            (Some(rank), Some(size)) => of(rank, size),
            (None, None) => LAUNCHERS
                .iter()
                .find(|(rank, size)| environment(rank).is_some() && environment(size).is_some())
                .map_or(Ok(None), |(rank, size)| of(rank, size)),
            _ => Err(
                "--mpi-world-rank-variable and --mpi-world-size-variable must be used together"
                    .to_owned(),
            ),
        }
    }
}

/// Reads ranks such as `0-3,8`.
fn numbers(text: &str) -> Result<BTreeSet<u64>, String> {
    let mut ranks = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let bad = || format!("'{part}' is neither a rank nor a range of ranks");
        let parse = |word: &str| word.parse::<u64>().map_err(|_| bad());
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (parse(first)?, parse(last)?),
            None => (parse(part)?, parse(part)?),
        };
        if first > last {
            return Err(format!("the range {part} ends before its start"));
        }
        if last > MOST {
            return Err(format!("rank {last} is too large"));
        }
        ranks.extend(first..=last);
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(settings: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Choice, String> {
        Settings::from_iter(settings.iter().copied()).rank_choice(|name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_rank_is_recorded_where_it_is_named_or_not_known() {
        let two = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "12"),
        ];
        for (ranks, recorded) in [
            ("0-3,8", true),
            ("0,1", false),
            ("2", true),
            ("2-2", true),
            ("3-3", false),
            ("3-11", false),
        ] {
            let choice = choice(&[(RANKS, ranks)], &two).unwrap();
            assert_eq!(choice.is_recorded, recorded, "{ranks}");
            assert_eq!(choice.rank.unwrap().rank, Some(2));
        }
        // No launcher, and a launcher of which half is there.
        assert!(choice(&[(RANKS, "1")], &[]).unwrap().is_recorded);
        assert_eq!(choice(&[], &[("PMI_RANK", "1")]).unwrap().rank, None);
        // The most specific launcher counts.
        let both = [two[0], two[1], ("SLURM_PROCID", "5"), ("SLURM_NTASKS", "6")];
        let rank = choice(&[], &both).unwrap().rank.unwrap();
        assert_eq!(
            (rank.rank, rank.variables.0.as_str()),
            (Some(5), "SLURM_PROCID")
        );
        // Variables of the user's own.
        let own = [
            (RANK_VARIABLE, "MY_RANK"),
            (SIZE_VARIABLE, "MY_SIZE"),
            (RANKS, "7"),
        ];
        let there = [two[0], ("MY_RANK", "7"), ("MY_SIZE", "8")];
        assert!(choice(&own, &there).unwrap().is_recorded);
        assert!(choice(&own, &two).unwrap().is_recorded, "it is not known");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let two = [("MPI_RANK", "2"), ("MPI_SIZE", "4")];
        for (ranks, why) in [
            ("3-1", "ends before its start"),
            ("a", "neither a rank"),
            ("1,", "neither a rank"),
            ("1-4", "rank 4 is out of range: there are 4 ranks, 0 to 3"),
            ("1-99999999999", "too large"),
        ] {
            let refused = choice(&[(RANKS, ranks)], &two).unwrap_err();
            assert!(refused.contains(why), "{ranks}: {refused}");
        }
        // 2^24 ranks at most.
        assert_eq!(numbers("16777216").map(|ranks| ranks.len()), Ok(1));
        assert_eq!(
            numbers("16777217"),
            Err("rank 16777217 is too large".to_owned())
        );
        let half = choice(&[(RANK_VARIABLE, "MPI_RANK")], &two).unwrap_err();
        assert!(half.contains("must be used together"), "{half}");
        let bad = choice(&[], &[("MPI_RANK", "x"), ("MPI_SIZE", "4")]).unwrap_err();
        assert!(bad.contains("MPI_RANK=x"), "{bad}");
    }
}
