//! Samples of program counters, as AMD's json has them.

use super::emit::Emit;
use crate::job::Job;
use midair_record::event::{PcSample, kind};
use midair_trace::samples::{self, HwId};
use std::io;

/// The kinds of instructions for which AMD's json has the arbiter's state, and the bit of each; those
/// without a bit are of other devices.
const ARBITER: [(&str, &str, Option<u32>); 10] = [
    ("arb_state_issue_valu", "arb_state_stall_valu", Some(7)),
    ("arb_state_issue_matrix", "arb_state_stall_matrix", Some(6)),
    ("arb_state_issue_lds", "arb_state_stall_lds", Some(3)),
    (
        "arb_state_issue_lds_direct",
        "arb_state_stall_lds_direct",
        None,
    ),
    ("arb_state_issue_scalar", "arb_state_stall_scalar", Some(5)),
    (
        "arb_state_issue_vmem_tex",
        "arb_state_stall_vmem_tex",
        Some(4),
    ),
    ("arb_state_issue_flat", "arb_state_stall_flat", Some(2)),
    ("arb_state_issue_exp", "arb_state_stall_exp", Some(1)),
    ("arb_state_issue_misc", "arb_state_stall_misc", Some(0)),
    ("arb_state_issue_brmsg", "arb_state_stall_brmsg", None),
];

/// Writes a sample. Its `inst_index` is a place in `strings.pc_sample_instructions`.
pub(super) fn sample<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    sample: &PcSample,
) -> io::Result<()> {
    let is_stochastic = sample.header.kind == kind::PC_SAMPLING_STOCHASTIC;
    out.open_object()?;
    out.number(
        "inst_index",
        job.sampled().index(sample).map_or(-1, i64::from),
    )?;
    out.key("record")?;
    out.open_object()?;
    if is_stochastic {
        out.key("flags")?;
        out.open_object()?;
        out.number("has_mem_cnt", 0)?;
        out.close_object()?;
    }
    hw_id(out, sample)?;
    out.key("pc")?;
    out.open_object()?;
    out.number("code_object_id", sample.code_object_id)?;
    out.number("code_object_offset", sample.offset)?;
    out.close_object()?;
    out.number("exec_mask", sample.exec_mask)?;
    out.number("timestamp", sample.time)?;
    out.number("dispatch_id", sample.dispatch_id)?;
    out.key("corr_id")?;
    out.open_object()?;
    out.number("internal", sample.correlation)?;
    out.number("external", 0)?;
    out.close_object()?;
    out.extents("wrkgrp_id", sample.workgroup)?;
    out.number("wave_in_grp", sample.wave_in_group)?;
    if is_stochastic {
        out.number("wave_issued", u8::from(sample.has_issued()))?;
        out.text("inst_type", samples::instruction_type(sample))?;
        out.number("wave_cnt", sample.wave_count())?;
        snapshot(out, sample)?;
    }
    out.close_object()?;
    out.close_object()
}

fn hw_id<W: io::Write>(out: &mut Emit<W>, sample: &PcSample) -> io::Result<()> {
    let id = HwId::of(sample);
    out.key("hw_id")?;
    out.open_object()?;
    out.number("chiplet", id.chiplet)?;
    out.number("wave_id", id.wave)?;
    out.number("simd_id", id.simd)?;
    out.number("pipe_id", id.pipe)?;
    out.number("cu_or_wgp_id", id.unit)?;
    out.number("shader_array_id", id.array)?;
    out.number("shader_engine_id", id.engine)?;
    // AMD's key has the blank.
    out.number("workgroup_id ", id.workgroup)?;
    out.number("vm_id", id.vm)?;
    out.number("queue_id", id.queue)?;
    out.number("microengine_id", id.microengine)?;
    out.close_object()
}

fn snapshot<W: io::Write>(out: &mut Emit<W>, sample: &PcSample) -> io::Result<()> {
    out.key("snapshot")?;
    out.open_object()?;
    out.text("stall_reason", samples::stall_reason(sample))?;
    out.number("dual_issue_valu", u8::from(sample.has_issued_two()))?;
    let state =
        |bit: Option<u32>, from: u32| bit.map_or(0, |bit| sample.arbiter() >> from >> bit & 1);
    for (issue, _, bit) in ARBITER {
        out.number(issue, state(bit, 0))?;
    }
    for (_, stall, bit) in ARBITER {
        out.number(stall, state(bit, 8))?;
    }
    out.close_object()
}
