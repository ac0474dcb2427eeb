//! Several processes that work together: which of them the others wait for.

use crate::answer::{Answer, ReasonKind};
use crate::reasons::is_collective;

/// Several processes.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    /// What was seen of each.
    pub answers: Vec<Answer>,
}

/// The state of a process with respect to collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// It waits in a collective.
    In,
    /// It uses a GPU or a library of collectives, and is elsewhere.
    Out,
    /// It takes no part, such as a launcher or a data loader.
    Aside,
}

impl Ranks {
    /// Returns the processes that the others wait for, by their indices among the answers. The result
    /// is empty unless some wait in a collective while others that take part are elsewhere.
    pub fn late(&self) -> Vec<usize> {
        let all: Vec<Stands> = self.answers.iter().map(stands).collect();
        if !all.contains(&Stands::In) {
            return Vec::new();
        }
        let out = all.iter().enumerate();
        out.filter(|(_, stands)| **stands == Stands::Out)
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns in sentences what the answers say together, or nothing where each stands for itself.
    pub fn sentences(&self) -> Vec<String> {
        let waiting: Vec<&Answer> = self
            .answers
            .iter()
            .filter(|answer| stands(answer) == Stands::In)
            .collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        let late = self.late();
        if late.is_empty() {
            return vec![format!(
                "all {} participating processes wait in a collective: none of them is late",
                waiting.len()
            )];
        }
        let names: Vec<String> = waiting.iter().map(|answer| who(answer)).collect();
        let wait = match names.len() {
            1 => "waits",
            _ => "wait",
        };
        late.iter()
            .filter_map(|index| self.answers.get(*index))
            .map(|answer| {
                let does = answer.reasons.first().map_or("", |reason| &reason.what);
                format!(
                    "{} {wait} in a collective for {}, which has not reached it: {does}",
                    names.join(", "),
                    who(answer)
                )
            })
            .collect()
    }
}

/// Describes a process in words.
pub(crate) fn who(answer: &Answer) -> String {
    match answer.rank {
        Some(rank) => format!("rank {rank} (process {})", answer.pid),
        None => format!("process {} ({})", answer.pid, answer.name),
    }
}

fn stands(answer: &Answer) -> Stands {
    let has_kernel = answer
        .queues
        .iter()
        .flat_map(|queue| &queue.running)
        .any(|run| is_collective(run) && !run.at_least.is_zero());
    let has_call = answer
        .reasons
        .iter()
        .any(|reason| reason.kind == ReasonKind::Collective);
    if has_kernel || has_call {
        return Stands::In;
    }
    match answer.rank.is_some() || !answer.queues.is_empty() {
        true => Stands::Out,
        false => Stands::Aside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Dispatch, Queue, Reason};
    use std::time::Duration;

    fn rank(number: u32, symbol: &str) -> Answer {
        let run = Dispatch {
            symbol: Some(symbol.to_owned()),
            at_least: Duration::from_secs(1),
            ..Dispatch::default()
        };
        Answer {
            pid: 100 + number,
            rank: Some(number),
            queues: vec![Queue {
                running: vec![run],
                ..Queue::default()
            }],
            reasons: vec![Reason {
                kind: ReasonKind::Kernel,
                what: "it computes".to_owned(),
                queue: None,
                thread: None,
            }],
            ..Answer::default()
        }
    }

    #[test]
    fn the_rank_that_does_not_come_is_named() {
        let collective = "_Z29ncclDevKernel_Generic_4Dev";
        let launcher = Answer {
            pid: 99,
            name: "torchrun".to_owned(),
            ..Answer::default()
        };
        let mut ranks = Ranks {
            answers: vec![
                launcher,
                rank(0, collective),
                rank(1, "gemm"),
                rank(2, collective),
            ],
        };
        assert_eq!(ranks.late(), [2]);
        assert_eq!(
            ranks.sentences(),
            [
                "rank 0 (process 100), rank 2 (process 102) wait in a collective for rank 1 (process 101), which has not reached it: it computes"
            ]
        );
        ranks.answers[2] = rank(1, collective);
        assert!(ranks.late().is_empty());
        assert_eq!(
            ranks.sentences(),
            ["all 3 participating processes wait in a collective: none of them is late"]
        );
        ranks.answers.retain(|answer| answer.rank == Some(5));
        assert!(ranks.sentences().is_empty());
    }
}
