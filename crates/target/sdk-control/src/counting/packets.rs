//! The packets of a list of counters, as words.

use midair_aqlprofile::planned::enabling;
use midair_counters::template::{self, Template};
use midair_counters::wire::{Gpu, RawEvent};
use midair_record::counter_plan::{Form, Group, Place};

/// The packets of some events for a kind of GPU.
#[derive(Debug)]
pub(super) struct Packets {
    pub gpu: Gpu,
    pub events: Vec<RawEvent>,
    pub which: Vec<u32>,
    pub template: Template,
}

impl Packets {
    /// Returns the same packets for an agent of this node.
    pub fn group(&self, node: u32) -> Group {
        let template = &self.template;
        let place = |place: &template::Place| Place {
            word: place.word,
            form: match place.form {
                template::Form::Bytes => Form::Bytes,
                template::Form::Pages => Form::Pages,
            },
            offset: place.offset,
        };
        Group {
            node,
            number: 0,
            output_bytes: template.output_bytes.next_multiple_of(8) as u32,
            start: template.start.clone(),
            read_stop: template.read_stop.clone(),
            read_words: template.read_words,
            enable: enabling(&template.start).to_vec(),
            places: template.places.iter().map(place).collect(),
        }
    }
}
