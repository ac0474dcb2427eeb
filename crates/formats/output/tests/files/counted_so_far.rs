//! The csv file of what was counted so far, which is rewritten while a process is attached.

use crate::common::{entries, golden_json, names, writer};
use crate::counters::{NODE, amds_plan, header, put, put_kernel, read, session, window};
use midair_counters::CounterPlan;
use midair_output::{KernelFilter, Plan, RecordWriter, write_counted_so_far};
use midair_record::event::{Kernel, Untimed, flag, kind};
use std::path::Path;

/// Returns a kernel of 64 workgroups of 256 work-items, which runs for so many nanoseconds.
fn kernel(dispatch_id: u64, nanoseconds: u64) -> Kernel {
    let start = 10_000 * dispatch_id;
    Kernel {
        header: header(kind::KERNEL_DISPATCH),
        start,
        end: start + nanoseconds,
        rung: start - 100,
        dispatch_id,
        kernel_id: 11,
        queue_id: 1,
        node: NODE,
        grid: [128, 64, 2],
        workgroup: [64, 4, 1],
        group_segment: 512,
        private_segment: 16,
        ..Kernel::default()
    }
}

/// Writes the file, and returns its lines.
fn lines(directory: &Path, writer: RecordWriter, counters: CounterPlan) -> Vec<String> {
    let mut trace = session(writer, counters);
    let plan = Plan::default();
    let all = KernelFilter::default();
    trace
        .records
        .choose(&all, plan.kernel_names, false)
        .unwrap();
    let to = directory.join("counted.csv");
    write_counted_so_far(&trace, &names(&golden_json()), &plan, &to).unwrap();
    // What was written before the file got its name is gone.
    assert_eq!(entries(directory), ["counted.csv"]);
    let text = read(directory, "counted.csv");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn those_with_values_have_lines_of_their_own_and_others_share_one() {
    let mut writer = writer();
    let counted = [kernel(1, 1_000), kernel(4, 2_000)];
    for kernel in &counted {
        put_kernel(&mut writer, kernel);
        let words = [kernel.dispatch_id; 9];
        put(
            &mut writer,
            window(kernel.dispatch_id, kernel, 9),
            &words,
            9,
        );
    }
    for kernel in [kernel(2, 1_000), kernel(3, 4_000), kernel(6, 1_000)] {
        put_kernel(&mut writer, &kernel);
    }
    let wider = Kernel {
        grid: [256, 64, 2],
        ..kernel(5, 700)
    };
    put_kernel(&mut writer, &wider);
    // One without times has no part in a mean.
    let mut untimed = kernel(7, 0);
    (untimed.header.flags, untimed.untimed) = (flag::UNTIMED, Untimed::PacketTakenFirst as u32);
    (untimed.start, untimed.end) = (0, 0);
    put_kernel(&mut writer, &untimed);
    let directory = tempfile::tempdir().unwrap();
    let found = lines(directory.path(), writer, amds_plan());
    let (same, registers) = ("0,16384,256,512,16", "8,0,16");
    let name = "\"vadd(float const*, float const*, float*, int)\"";
    let wanted = [
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,\
         Arch_VGPR,Accum_VGPR,SGPR,Kernel_Name,Dispatches,GRBM_COUNT,SQ_WAVES,Start_Timestamp,\
         End_Timestamp"
            .to_owned(),
        format!("1,{same},{registers},{name},1,1,8,10000,11000"),
        format!("4,{same},{registers},{name},1,4,32,40000,42000"),
        // Three have a mean of 2000 ns.
        format!("2,{same},{registers},{name},3,,,20000,22000"),
        format!("5,0,32768,256,512,16,{registers},{name},1,,,50000,50700"),
    ];
    assert_eq!(found, wanted);
}

/// Each time the whole file is replaced.
#[test]
fn a_file_that_is_there_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = writer();
    put_kernel(&mut first, &kernel(1, 1_000));
    assert_eq!(lines(directory.path(), first, amds_plan()).len(), 2);
    assert_eq!(lines(directory.path(), writer(), amds_plan()).len(), 1);
}

/// Kernels that no symbol describes have the number 0. They are distinguished by the address of their code.
#[test]
fn kernels_without_a_number_are_told_apart_by_their_code() {
    let mut writer = writer();
    for (dispatch_id, kernel_id, kernel_object) in [
        (1, 0, 0x1000),
        (2, 0, 0x2000),
        (3, 0, 0x1000),
        (4, 11, 0x1000),
        (5, 11, 0x2000),
    ] {
        let kernel = Kernel {
            kernel_id,
            kernel_object,
            ..kernel(dispatch_id, 1_000)
        };
        put_kernel(&mut writer, &kernel);
    }
    let directory = tempfile::tempdir().unwrap();
    let found = lines(directory.path(), writer, amds_plan());
    // The first of each, and how many there are.
    let told = |line: &String| {
        let first = line.split(',').next().unwrap().to_owned();
        (first, line.rsplit(',').nth(4).unwrap().to_owned())
    };
    let told: Vec<(String, String)> = found.iter().skip(1).map(told).collect();
    let wanted = [("1", "2"), ("2", "1"), ("4", "2")];
    assert_eq!(
        told,
        wanted.map(|(first, count)| (first.to_owned(), count.to_owned()))
    );
}
