//! The packets of a list of counters, as words.

use super::{helper, locked};
use crate::state::STATE;
use midair_aqlprofile::{for_each_name, question};
use midair_counters::template::{self, Template};
use midair_counters::wire::{Gpu, RawEvent};
use midair_record::counter_plan::{Form, Group, Place};
use midair_sdk_api::counting::config::Config;
use std::sync::Arc;

/// What was made of some events on a kind of GPU.
#[derive(Debug)]
pub(super) struct Packets {
    gpu: Gpu,
    events: Vec<RawEvent>,
    which: Vec<u32>,
    pub template: Template,
}

/// The packets of a list. The same counters of GPUs of one kind have the same.
pub(super) fn of(config: &Config) -> Result<Arc<Packets>, String> {
    let device = config.device();
    let [xccs, engines, units, arrays, domain, location] = device.cut();
    let gpu = Gpu {
        name: device.name.clone(),
        xccs,
        engines,
        units,
        arrays,
        domain,
        location,
    };
    let (question, which) = question(&gpu, config.events());
    if question.events.is_empty() {
        return Err(format!("the counters of {} are not known", gpu.name));
    }
    let mut helper = locked(&STATE.counting.helper);
    let known = helper
        .made
        .iter()
        .find(|made| made.gpu == gpu && made.events == question.events && made.which == which);
    if let Some(known) = known {
        return Ok(known.clone());
    }
    let mut template = helper::ask(&mut helper, &question)?;
    template.slots = for_each_name(&template.slots, &which);
    let made = Arc::new(Packets {
        gpu,
        events: question.events,
        which,
        template,
    });
    helper.made.push(made.clone());
    Ok(made)
}

impl Packets {
    /// The same for an agent of this node.
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
            places: template.places.iter().map(place).collect(),
        }
    }
}
