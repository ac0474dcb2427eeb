//! How often each kind of call and work came (`--benchmark-mode execution-profile`).
//!
//! The words are AMD's: kinds without the mark of records with arguments, in small letters.

use crate::job::Job;
use midair_record::event::{Record, kind};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

/// The most operations of a kind that are distinguished: a target can invent any number.
const MOST: usize = 1 << 14;

/// Returns the number of threads and of contexts, and by kind how many records there are and of how many
/// operations. All kinds are in one context.
pub(crate) fn of(job: &Job<'_>) -> Value {
    let mut kinds: BTreeMap<u8, (u64, BTreeSet<u32>)> = BTreeMap::new();
    let mut threads = BTreeSet::new();
    // Records that cannot be read are missing here, as in all files.
    let _ = job.trace.records.walk_all(
        |kind| kind < kind::FIRST_DESCRIPTION && kind != kind::RUNTIME_INITIALIZATION,
        |record| {
            if let Some(header) = record.header() {
                let (count, operations) = kinds.entry(header.kind).or_default();
                *count += 1;
                if operations.len() < MOST {
                    operations.insert(header.operation);
                }
            }
            if let Some(thread) = thread(record).filter(|_| threads.len() < MOST) {
                threads.insert(thread);
            }
            Ok::<(), Infallible>(())
        },
    );
    let mut all = Map::new();
    all.insert("threads".to_owned(), threads.len().into());
    all.insert("contexts".to_owned(), u8::from(!kinds.is_empty()).into());
    for (kind, (count, operations)) in kinds {
        let name = job.names.kind(kind).to_lowercase();
        let name = name.strip_suffix("_ext").unwrap_or(&name).to_owned();
        let facts = json!({ "count": count, "unique": operations.len() });
        all.insert(name, facts);
    }
    Value::Object(all)
}

fn thread(record: &Record<'_>) -> Option<u32> {
    Some(match record {
        Record::Api(api, _) => api.tid,
        Record::Marker(marker, _) => marker.tid,
        Record::Kernel(kernel, _) => kernel.tid,
        Record::Copy(copy, _) => copy.tid,
        Record::Allocation(allocation) => allocation.tid,
        Record::Scratch(scratch) => scratch.tid,
        _ => return None,
    })
}
