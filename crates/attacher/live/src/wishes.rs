//! What a view requests from a session, and how the session answers.

use crate::model::Model;
use midair_output::Keep;

/// The most answers that are kept until they are taken.
const MOST_ANSWERS: usize = 64;

/// A request to write the records of a span of time to files, once the span is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The start of the span, CLOCK_BOOTTIME ns.
    pub from: u64,
    /// The end of the span, CLOCK_BOOTTIME ns.
    pub to: u64,
    /// Why, in words for the user.
    pub why: String,
}

/// The outcome of a [`Cut`], in words for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Why it was made.
    pub why: String,
    /// Its files, or why there are none.
    pub files: Result<Vec<String>, String>,
}

/// The requests and answers; see the module.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    keep: Option<Keep>,
    cuts: Vec<Cut>,
    answers: Vec<Answer>,
}

impl Model {
    /// Requests what the session is to keep from its next poll on.
    pub fn wish_to_keep(&mut self, keep: Keep) {
        self.wishes.keep = Some(keep);
    }

    /// Requests files of a span.
    pub fn wish_for(&mut self, cut: Cut) {
        self.wishes.cuts.push(cut);
    }

    /// Returns what is to be kept from now on, if that was requested since the last call.
    pub fn keep_wished(&mut self) -> Option<Keep> {
        self.wishes.keep.take()
    }

    /// Takes out the requests whose spans ended before `time`, or all where it is None.
    pub fn cuts_due(&mut self, time: Option<u64>) -> Vec<Cut> {
        let is_due = |cut: &mut Cut| time.is_none_or(|time| cut.to < time);
        self.wishes.cuts.extract_if(.., is_due).collect()
    }

    /// Whether a requested span is not over yet.
    pub fn has_cuts(&self) -> bool {
        !self.wishes.cuts.is_empty()
    }

    /// Adds the outcome of a request.
    pub fn answer(&mut self, answer: Answer) {
        if self.wishes.answers.len() < MOST_ANSWERS {
            self.wishes.answers.push(answer);
        }
    }

    /// Returns the answers since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.wishes.answers)
    }
}
