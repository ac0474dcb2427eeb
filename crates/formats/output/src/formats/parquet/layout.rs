//! The tables and their columns. Times are nanoseconds. Columns that only CUDA's records have are
//! empty in all others, so that the files of all processes have the same columns.

use midair_columns::{Field, Sort};

/// A table, by its place in [`LAYOUTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kernels,
    MemoryCopies,
    Calls,
    Markers,
    MemoryAllocations,
    ScratchMemory,
    MemorySets,
    Synchronizations,
    UnifiedMemory,
    Counters,
    CounterBatches,
    DeviceCounters,
    GpuMetrics,
    GraphLaunches,
    HipEvents,
    Agents,
}

const fn of(name: &'static str, sort: Sort) -> Field {
    Field {
        name,
        sort,
        optional: false,
    }
}

const fn number(name: &'static str) -> Field {
    of(name, Sort::Number)
}

const fn text(name: &'static str) -> Field {
    of(name, Sort::Text)
}

const fn maybe(field: Field) -> Field {
    Field {
        optional: true,
        ..field
    }
}

const START: Field = of("start_ns", Sort::Time);
const END: Field = of("end_ns", Sort::Time);
const PID: Field = number("pid");
const TID: Field = number("tid");
const CORRELATION: Field = number("corr_id");
const NAME: Field = text("name");
const CONTEXT: Field = maybe(number("context"));
const DEVICE: Field = maybe(number("device"));
const GRAPH: Field = maybe(number("graph"));
const GRAPH_NODE: Field = maybe(number("graph_node"));
const CUDA_STREAM: Field = maybe(number("cuda_stream"));

/// The name of the directory and the columns of each table.
pub(super) static LAYOUTS: [(&str, &[Field]); 16] = [
    (
        "kernels",
        &[
            NAME,
            text("agent"),
            number("queue"),
            number("stream"),
            PID,
            TID,
            number("dispatch_id"),
            number("kernel_id"),
            CORRELATION,
            START,
            END,
            number("lds_bytes"),
            number("scratch_bytes"),
            number("vgpr"),
            number("accum_vgpr"),
            number("sgpr"),
            number("workgroup_x"),
            number("workgroup_y"),
            number("workgroup_z"),
            number("grid_x"),
            number("grid_y"),
            number("grid_z"),
            CONTEXT,
            DEVICE,
            maybe(number("static_shared_bytes")),
            maybe(number("dynamic_shared_bytes")),
            GRAPH,
            GRAPH_NODE,
            CUDA_STREAM,
        ],
    ),
    (
        "memory_copies",
        &[
            text("direction"),
            number("stream"),
            text("source"),
            text("destination"),
            PID,
            TID,
            CORRELATION,
            START,
            END,
            number("bytes"),
            CONTEXT,
            maybe(text("source_memory")),
            maybe(text("destination_memory")),
            GRAPH,
            GRAPH_NODE,
            CUDA_STREAM,
        ],
    ),
    (
        "calls",
        &[
            text("domain"),
            NAME,
            PID,
            TID,
            CORRELATION,
            START,
            END,
            maybe(number("result")),
        ],
    ),
    (
        "markers",
        &[text("domain"), NAME, PID, TID, CORRELATION, START, END],
    ),
    (
        "memory_allocations",
        &[
            text("operation"),
            maybe(text("agent")),
            number("bytes"),
            number("address"),
            PID,
            TID,
            CORRELATION,
            START,
            END,
        ],
    ),
    (
        "scratch_memory",
        &[
            text("operation"),
            text("agent"),
            number("queue"),
            PID,
            TID,
            number("flags"),
            START,
            END,
            number("bytes"),
        ],
    ),
    (
        "memory_sets",
        &[
            text("operation"),
            text("agent"),
            number("stream"),
            PID,
            TID,
            CORRELATION,
            START,
            END,
            number("context"),
            DEVICE,
            number("bytes"),
            number("value"),
            number("graph"),
            number("graph_node"),
            number("cuda_stream"),
        ],
    ),
    (
        "synchronizations",
        &[
            text("operation"),
            maybe(number("stream")),
            PID,
            TID,
            CORRELATION,
            START,
            END,
            number("context"),
            maybe(number("event")),
            CUDA_STREAM,
        ],
    ),
    (
        "unified_memory",
        &[
            text("operation"),
            maybe(text("source")),
            maybe(text("destination")),
            PID,
            number("address"),
            number("value"),
            START,
            END,
            CUDA_STREAM,
        ],
    ),
    (
        "counters",
        &[
            CORRELATION,
            number("dispatch_id"),
            text("agent"),
            number("queue"),
            PID,
            TID,
            number("kernel_id"),
            NAME,
            text("counter"),
            of("value", Sort::Real),
            START,
            END,
        ],
    ),
    (
        "counter_batches",
        &[
            number("batch"),
            CORRELATION,
            text("agent"),
            number("queue"),
            PID,
            TID,
            number("dispatches"),
            text("dispatch_ids"),
            text("kernels"),
            text("counter"),
            of("value", Sort::Real),
            START,
            END,
        ],
    ),
    (
        "device_counters",
        &[
            number("reading"),
            text("agent"),
            PID,
            text("counter"),
            of("value", Sort::Real),
            START,
            END,
        ],
    ),
    (
        "gpu_metrics",
        &[
            number("gpu"),
            number("group"),
            text("metric"),
            of("value", Sort::Real),
            START,
            END,
        ],
    ),
    (
        "graph_launches",
        &[
            number("graph"),
            maybe(text("agent")),
            maybe(number("queue")),
            number("stream"),
            PID,
            TID,
            CORRELATION,
            START,
            END,
            number("kernels"),
            maybe(text("remark")),
        ],
    ),
    (
        "hip_events",
        &[
            text("operation"),
            number("event"),
            text("agent"),
            number("queue"),
            maybe(number("source_queue")),
            number("stream"),
            PID,
            TID,
            CORRELATION,
            START,
            END,
            maybe(text("remark")),
        ],
    ),
    (
        "agents",
        &[
            text("agent"),
            PID,
            number("node"),
            text("type"),
            NAME,
            text("product"),
            text("vendor"),
            number("compute_units"),
            number("simds"),
            number("wave_front"),
            number("clock_mhz"),
            number("memory_bytes"),
            number("location"),
            number("domain"),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place() {
        assert_eq!(LAYOUTS[Kind::Kernels as usize].0, "kernels");
        assert_eq!(LAYOUTS[Kind::Counters as usize].0, "counters");
        assert_eq!(LAYOUTS[Kind::Agents as usize].0, "agents");
        assert_eq!(LAYOUTS.len(), Kind::Agents as usize + 1);
        for (name, fields) in LAYOUTS {
            let mut names: Vec<&str> = fields.iter().map(|field| field.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), fields.len(), "{name}");
        }
    }
}
