//! Files written for whole sessions: against AMD's own, and against what the target or the disk can do to us.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, too, stop at the first surprise"
)]

mod below;
mod common;
mod compatibility;
mod counted_so_far;
mod counter_batches;
mod counter_means;
mod counter_windows;
mod counters;
mod cuda;
mod cuda_formats;
mod cuda_hostile;
mod difference;
mod driver_events;
mod events;
mod frame_parts;
mod golden;
mod gpu;
mod graphs;
mod hostile;
mod html;
mod html_data;
mod kineto;
mod kineto_data;
mod kineto_events;
mod otf2;
mod otf2_archive;
mod otf2_bytes;
mod own_names;
mod parquet;
mod perfetto_ui;
mod pftrace;
mod pftrace_levels;
mod pftrace_memory;
mod readings;
mod recordings;
mod rocpd;
mod rocpd_limits;
mod rocpd_rows;
mod stack_cost;
mod stacks;
mod statistics;
mod steps;
mod threads;
mod together;
