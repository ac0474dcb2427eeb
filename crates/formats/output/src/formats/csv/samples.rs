//! Samples of program counters: AMD's columns, and behind them where the instruction is.

use super::row::Row;
use crate::job::Job;
use midair_record::event::{PcSample, Record};
use midair_trace::samples;

pub(super) const HOST_TRAP: &[&str] = &[
    "Sample_Timestamp",
    "Exec_Mask",
    "Dispatch_Id",
    "Instruction",
    "Instruction_Comment",
    "Correlation_Id",
    "Code_Object_Id",
    "Code_Object_Offset",
    "Kernel_Id",
    "Kernel_Name",
    "Kernel_Offset",
    "Agent_Id",
];

pub(super) const STOCHASTIC: &[&str] = &[
    "Sample_Timestamp",
    "Exec_Mask",
    "Dispatch_Id",
    "Instruction",
    "Instruction_Comment",
    "Correlation_Id",
    "Wave_Issued_Instruction",
    "Instruction_Type",
    "Stall_Reason",
    "Wave_Count",
    "Code_Object_Id",
    "Code_Object_Offset",
    "Kernel_Id",
    "Kernel_Name",
    "Kernel_Offset",
    "Agent_Id",
];

pub(super) fn host_trap_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    if let Record::PcSample(sample) = record {
        first(row, job, sample);
        place(row, job, sample);
    }
}

pub(super) fn stochastic_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::PcSample(sample) = record else {
        return;
    };
    first(row, job, sample);
    row.number(u8::from(sample.has_issued()))
        .text(samples::instruction_type(sample))
        .text(samples::stall_reason(sample))
        .number(sample.wave_count());
    place(row, job, sample);
}

fn first(row: &mut Row, job: &Job<'_>, sample: &PcSample) {
    row.number(sample.time)
        .number(sample.exec_mask)
        .number(sample.dispatch_id);
    let (instruction, comment) = job.instruction(sample);
    row.text(&instruction).text(&comment);
    row.number(sample.correlation);
}

fn place(row: &mut Row, job: &Job<'_>, sample: &PcSample) {
    row.number(sample.code_object_id).number(sample.offset);
    let (kernel, offset) = job
        .code
        .find(sample.code_object_id, sample.pc)
        .unwrap_or((0, 0));
    row.number(kernel)
        .name(job.name_of_kernel(kernel))
        .number(offset)
        .agent(job, sample.node);
}
