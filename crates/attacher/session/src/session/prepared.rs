//! What a session needs on this side before the process is entered: the spool, the file for records,
//! and copies of the tools.

use super::tool::{Tool, has_copy_of_ours, memory_copy};
use crate::attach::record_file;
use crate::counters::Counters;
use crate::gpu_metrics;
use crate::install::{Install, Tools, unreadable};
use crate::instructions::Instructions;
use crate::packets::HELPER;
use crate::request::Request;
use midair_aqlprofile::PACKET_HELPER;
use midair_failure::{Failure, Kind};
use midair_output::RecordWriter;
use midair_ptrace::fault;
use midair_record::offer::MAX_TOOLS;
use midair_record::spool::{Reader, ReaderOptions};
use midair_results::{Identity, record_limit};
use midair_settings::{EXTRA_COUNTERS, TOOLS_BY_NAME};
use std::time::Duration;

/// What a session needs on this side. It is prepared while the engine enters.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) identity: Identity,
    pub(super) reader: Reader,
    pub(super) records: RecordWriter,
    pub(super) tools: Vec<Tool>,
    pub(super) counters: Option<Counters>,
    pub(super) only_others: bool,
    pub(super) instructions: Instructions,
}

impl Prepared {
    /// Makes the spool and the file for records, and copies the tools into memory. `sees_us` tells
    /// whether the process finds this one in its `/proc`.
    pub(crate) fn make(
        identity: Identity,
        tools: &Tools,
        counters: Option<Counters>,
        install: &Install,
        request: &Request,
        sees_us: bool,
    ) -> Result<Prepared, Failure> {
        if tools.files.len() > MAX_TOOLS {
            return Err(Failure::new(
                Kind::Usage,
                format!(
                    "{} tools given; the limit is {MAX_TOOLS}",
                    tools.files.len()
                ),
            ));
        }
        let mut settings = request.settings.clone();
        settings.remove(TOOLS_BY_NAME);
        settings.remove(EXTRA_COUNTERS);
        gpu_metrics::remove(&mut settings);
        settings.remove(PACKET_HELPER);
        let has_others = tools.files.iter().any(|file| *file != install.tool);
        if (has_others || !tools.names.is_empty())
            && let Ok(helper) = install.helper(HELPER)
            && let Some(helper) = helper.to_str()
            && let Some(there) = helper_there(helper, sees_us)
        {
            // Only tools other than ours choose counters in the process.
            settings.set(PACKET_HELPER, there);
        }
        if !tools.names.is_empty() {
            settings.set(TOOLS_BY_NAME, tools.names.join(":"));
        }
        let settings = settings
            .encode()
            .map_err(|error| Failure::new(Kind::Usage, error.to_string()))?;
        let options = ReaderOptions {
            size: usize::try_from(request.spool_bytes).unwrap_or(usize::MAX),
            settings,
            drain_ms: millis(request.drain),
            lease_ms: millis(request.lease),
            session: identity.keys.launched as u64,
        };
        let reader = Reader::create(&options).map_err(|error| {
            Failure::new(Kind::Setup, error.to_string()).hint("a smaller spool needs less memory")
        })?;
        fault::step("spool made");
        let records = record_file()?;
        let mut records = records.limited(record_limit(&request.settings)?);
        records.keep(request.keep);
        // No tool is sent where CUDA is recorded. Only our own library records then.
        let none = tools.files.is_empty() && tools.names.is_empty();
        let is_ours = tools.files.contains(&install.tool);
        let tools: Vec<Tool> = tools
            .files
            .iter()
            .map(|tool| {
                let copy = tools
                    .open(tool, install)
                    .and_then(|file| memory_copy(&file));
                copy.map_err(|error| unreadable(tool, &error))
            })
            .collect::<Result<_, _>>()?;
        let only_others = !none && !is_ours && !has_copy_of_ours(&tools, install);
        fault::step("session prepared");
        Ok(Prepared {
            identity,
            reader,
            records,
            tools,
            counters,
            only_others,
            instructions: Instructions::of(&request.settings, install),
        })
    }
}

/// Returns where a process finds our helper, whose path is `helper` here: its root directory may
/// differ from ours. A path through this process's entry in `/proc` is for a process alone that finds
/// this one there. In another pid namespace another process may have that number, and the program
/// that lies in that one's root would be started.
fn helper_there(helper: &str, sees_us: bool) -> Option<String> {
    let us = format!("/proc/{}/", std::process::id());
    match (helper.strip_prefix("/proc/self/"), sees_us) {
        (Some(rest), true) => Some(format!("{us}{rest}")),
        (None, true) => Some(format!("{helper}:{us}root{helper}")),
        (Some(_), false) => None,
        (None, false) => Some(helper.to_owned()),
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a process is another process's in another pid namespace.
    #[test]
    fn a_path_through_this_process_is_for_those_that_see_it() {
        let us = format!("/proc/{}/", std::process::id());
        for (helper, sees_us, there) in [
            ("/opt/h", true, Some(format!("/opt/h:{us}root/opt/h"))),
            ("/opt/h", false, Some("/opt/h".to_owned())),
            ("/proc/self/fd/7", true, Some(format!("{us}fd/7"))),
            ("/proc/self/fd/7", false, None),
        ] {
            assert_eq!(helper_there(helper, sees_us), there, "{helper} {sees_us}");
        }
    }
}
