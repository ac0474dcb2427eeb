//! The text of instructions that were sampled, and their lines in the sources.
//!
//! The first sample of a code object makes this side copy the code object, since the process may unload it,
//! or end. At the end of the session, when nothing waits for this process any more, a helper
//! disassembles the instructions that have samples, and their lines are read from the copy.

pub(crate) mod copied;

use crate::install::Install;
use crate::packets::rocm_roots;
use crate::session::memory_copy;
use copied::{Copied, MOST};
use midair_agents::Agent;
use midair_disassemble::wire::{self, Question};
use midair_disassemble::{HELPER, Object, ask, tools};
use midair_output::Index;
use midair_procinfo::Pid;
use midair_record::event::Instruction;
use midair_settings::{PC_SAMPLING, Settings};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the disassembler may take for all of a session's instructions. An answer takes milliseconds; the
/// library is some 100 MB large and may have to come from a disk.
const LIMIT: Duration = Duration::from_secs(15);
/// How long the lines of all code objects are looked for.
const LINES: Duration = Duration::from_secs(6);
/// The start of the note about instructions without text.
const NO_TEXT: &str = "sampled instructions have no text";

/// An instruction: its code object, and its offset there.
type Place = (u64, u64);

/// The instructions of a session.
#[derive(Debug)]
pub(crate) struct Instructions {
    /// The helper. None where no samples are asked for.
    helper: Option<Result<File, String>>,
    objects: HashMap<u64, Result<Copied, String>>,
    /// The bytes of all copies.
    bytes: usize,
    /// How many code objects with samples were looked at.
    seen: usize,
    /// What has a record.
    named: HashSet<Place>,
    note: Option<String>,
}

impl Instructions {
    /// Prepares the helper where samples are asked for.
    pub(crate) fn of(settings: &Settings, install: &Install) -> Instructions {
        let helper = settings.is_on(PC_SAMPLING).then(|| {
            let file = install.open(&install.tool.with_file_name(HELPER));
            let copy = file.and_then(|file| memory_copy(&file));
            copy.map(|copy| copy.file)
                .map_err(|error| error.to_string())
        });
        Instructions {
            helper,
            objects: HashMap::new(),
            bytes: 0,
            seen: 0,
            named: HashSet::new(),
            note: None,
        }
    }

    /// Copies the code objects that have samples and were not copied yet.
    pub(crate) fn look(&mut self, pid: Pid, index: &Index) {
        let objects = index.samples.objects();
        if self.helper.is_none() || objects.len() == self.seen {
            return;
        }
        self.seen = objects.len();
        for id in objects {
            if *id == 0 || self.objects.contains_key(id) {
                continue;
            }
            // The description of a code object comes before samples of it, or never.
            let Some(object) = index.code_objects.get(id) else {
                continue;
            };
            let copied = Copied::read(pid, object, MOST.saturating_sub(self.bytes));
            self.bytes += copied.as_ref().map_or(0, |copied| copied.bytes.len());
            self.objects.insert(*id, copied);
        }
    }

    /// Returns records of all instructions that have samples and no record yet.
    pub(crate) fn records(&mut self, index: &Index, agents: &[Agent]) -> Vec<u8> {
        let mut whys: Vec<String> = Vec::new();
        // By device: the places with their bytes.
        let mut questions: BTreeMap<String, Vec<(Place, Vec<u8>)>> = BTreeMap::new();
        let mut lines: HashMap<Place, String> = HashMap::new();
        let until = Instant::now() + LINES;
        for id in index.samples.objects() {
            let Some(described) = index.code_objects.get(id) else {
                continue;
            };
            let copied = match self.objects.get(id) {
                Some(Ok(copied)) => copied,
                Some(Err(why)) => {
                    whys.push(format!("code object {id}: {why}"));
                    continue;
                }
                None => continue,
            };
            let object = match Object::read(&copied.bytes) {
                Ok(object) => object,
                Err(why) => {
                    whys.push(format!("code object {id}: {why}"));
                    continue;
                }
            };
            let record = &described.record;
            let device = device(agents, record.node);
            let all = index.samples.of_object(*id);
            let all = all.keys().map(|pc| {
                let address = pc.wrapping_add_signed(record.load_delta.wrapping_neg());
                (address, (*id, pc.wrapping_sub(record.load_base)))
            });
            let all: Vec<_> = all.filter(|(_, it)| !self.named.contains(it)).collect();
            if Instant::now() < until {
                let addresses: Vec<u64> = all.iter().map(|(address, _)| *address).collect();
                let found = object.lines(&addresses).into_iter();
                let found = all.iter().map(|(_, place)| *place).zip(found);
                lines.extend(found.filter(|(_, line)| !line.is_empty()));
            }
            let question = questions.entry(device).or_default();
            for (address, place) in all {
                if let Some(bytes) = object.instruction(address) {
                    question.push((place, bytes.to_vec()));
                }
            }
        }
        let mut records = Vec::new();
        for (device, instructions) in questions {
            let texts = self.texts(&device, &instructions, &mut whys);
            for (number, (place, _)) in instructions.iter().enumerate() {
                let text = texts.get(number).map_or("", String::as_str);
                let line = lines.get(place).map_or("", String::as_str);
                let has_some = !text.is_empty() || !line.is_empty();
                if has_some && self.named.insert(*place) {
                    records.extend(Instruction::record(place.0, place.1, text, line));
                }
            }
        }
        whys.sort();
        whys.dedup();
        if !whys.is_empty() {
            let first = whys.swap_remove(0);
            let more = match whys.len() {
                0 => String::new(),
                more => format!(" (and {more} more reasons)"),
            };
            self.note = Some(format!("{NO_TEXT}: {first}{more}"));
        }
        records
    }

    fn texts(
        &self,
        device: &str,
        instructions: &[(Place, Vec<u8>)],
        whys: &mut Vec<String>,
    ) -> Vec<String> {
        let helper = match &self.helper {
            Some(Ok(helper)) => helper,
            Some(Err(why)) => {
                whys.push(format!("cannot use {HELPER}: {why}"));
                return Vec::new();
            }
            None => return Vec::new(),
        };
        if instructions.is_empty() {
            return Vec::new();
        }
        if !wire::is_device(device) {
            whys.push("the device has no name".to_owned());
            return Vec::new();
        }
        let bytes = instructions.iter().map(|(_, bytes)| bytes.clone());
        let question = Question {
            device: device.to_owned(),
            instructions: bytes.take(wire::MOST).collect(),
        };
        let program = PathBuf::from(format!("/proc/self/fd/{}", helper.as_raw_fd()));
        match ask(&program, &tools::arguments(&rocm_roots()), question, LIMIT) {
            Ok(answer) => {
                whys.extend(answer.cut);
                answer.texts
            }
            Err(error) => {
                whys.push(error.to_string());
                Vec::new()
            }
        }
    }

    /// Returns why instructions have no text, if any has none.
    pub(crate) fn note(&mut self) -> Option<String> {
        self.note.take()
    }
}

/// Returns the name of the device on this node.
fn device(agents: &[Agent], node: u32) -> String {
    let agent = agents.iter().find(|agent| agent.node_id == node);
    agent.map_or_else(String::new, |agent| agent.name.clone())
}
