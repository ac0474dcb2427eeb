//! `rocprof-compute analyze` on `pmc_perf.csv` with one line for each counter, as AMD's 3.3 and later
//! write it for `--format-rocprof-output rocpd`, and on files that it must refuse.

use midair_compute::Form;
use midair_compute::read::Workload;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SYSTEM: &str = "workload_name,command,gpu_model,gpu_arch,cu_per_gpu,simd_per_cu,se_per_gpu,wave_size,\
max_waves_per_cu,max_sclk,max_mclk,total_l2_chan,lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
vadd,,MI300X_A1,gfx942,304,4,32,64,32,2100,1300,128,32,160,4,8,128\n";
const HEAD: &str = "GPU_ID,Dispatch_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,\
Arch_VGPR,Accum_VGPR,SGPR,Kernel_Name,Start_Timestamp,End_Timestamp,Kernel_ID,Counter_Name,Counter_Value\n";

/// Three dispatches on the agents 4 and 6: kernel, agent, and nanoseconds.
const DISPATCHES: [(&str, u32, u64); 3] = [
    ("\"vadd(float*, int)\"", 4, 7000),
    ("scale", 6, 6000),
    ("\"vadd(float*, int)\"", 4, 9000),
];

/// Returns the lines of a pass that starts at this time, in which each dispatch takes so much
/// longer. Each counter has its factor times the dispatch's number plus one.
fn pass(start: u64, longer: u64, counters: &[(String, u64)]) -> String {
    let mut text = String::new();
    for (id, (kernel, agent, took)) in DISPATCHES.iter().enumerate() {
        let begin = start + id as u64 * 100_000;
        for (counter, factor) in counters {
            let value = factor * (id as u64 + 1);
            writeln!(
                text,
                "{agent},{id},65536,256,0,0,8,0,16,{kernel},{begin},{},{id},{counter},{value}.0",
                begin + took + longer
            )
            .unwrap();
        }
    }
    text
}

fn counter(name: &str, factor: u64) -> (String, u64) {
    (name.to_owned(), factor)
}

/// Writes a directory with this `pmc_perf.csv`.
fn directory(at: &Path, table: &str) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("sysinfo.csv"), SYSTEM).unwrap();
    fs::write(at.join("pmc_perf.csv"), table).unwrap();
}

fn column(workload: &Workload, name: &str) -> Vec<f64> {
    let column = workload.frame.named(name);
    let column = column.unwrap_or_else(|| panic!("there is no {name}"));
    (0..workload.frame.rows)
        .map(|row| column.get(row))
        .collect()
}

#[test]
fn passes_of_a_long_file_become_one_line_for_each_dispatch() {
    let temporary = tempfile::tempdir().unwrap();
    let mut first = vec![counter("SQ_WAVES", 4), counter("SQ_INSTS", 40)];
    first.extend((0..128).map(|channel| counter(&format!("TCC_HIT[{channel}]"), 1)));
    // A counter that the first pass has as well is not counted twice.
    let second = [counter("SQ_WAVES", 7), counter("SQ_WAVE_CYCLES", 100)];
    let text = pass(1_000_000, 0, &first) + &pass(900_000_000, 1000, &second);
    directory(temporary.path(), &format!("{HEAD}{text}"));
    let workload = Workload::read(temporary.path(), &[]).unwrap();
    assert_eq!(workload.frame.rows, 3);
    assert_eq!(workload.form, Form::Means);
    assert_eq!(column(&workload, "SQ_WAVES"), [4.0, 8.0, 12.0]);
    assert_eq!(column(&workload, "SQ_WAVE_CYCLES"), [100.0, 200.0, 300.0]);
    assert_eq!(column(&workload, "TCC_HIT[127]"), [1.0, 2.0, 3.0]);
    assert_eq!(column(&workload, "Dispatch_ID"), [0.0, 1.0, 2.0]);
    // GPUs are numbered from 0, whatever the agents' numbers are.
    assert_eq!(column(&workload, "GPU_ID"), [0.0, 1.0, 0.0]);
    // The median over all lines, of which nearly all are in the first pass.
    let took: Vec<f64> = (0..3).map(|row| workload.frame.duration(row)).collect();
    assert_eq!(took, [7000.0, 6000.0, 9000.0]);

    // A version with this name computes ratios of sums.
    let system = SYSTEM.replace("num_hbm_channels", "num_memory_channels");
    fs::write(temporary.path().join("sysinfo.csv"), system).unwrap();
    let workload = Workload::read(temporary.path(), &[]).unwrap();
    assert_eq!(workload.form, Form::Sums);
}

#[test]
fn a_long_file_has_the_figures_of_the_wide_one() {
    let temporary = tempfile::tempdir().unwrap();
    let counters = [counter("SQ_WAVES", 4), counter("SQ_INSTS", 40)];
    let long = temporary.path().join("long");
    // The order of the lines does not matter.
    let lines = pass(1_000_000, 0, &counters);
    let (odd, even): (Vec<_>, Vec<_>) = lines.lines().partition(|it| it.contains("SQ_INSTS"));
    directory(
        &long,
        &format!("{HEAD}{}\n{}\n", odd.join("\n"), even.join("\n")),
    );
    let wide = temporary.path().join("wide");
    let mut text = HEAD.replace("Counter_Name,Counter_Value", "SQ_WAVES,SQ_INSTS");
    for (id, (kernel, agent, took)) in DISPATCHES.iter().enumerate() {
        let (begin, n) = (1_000_000 + id as u64 * 100_000, id + 1);
        writeln!(
            text,
            "{},{id},65536,256,0,0,8,0,16,{kernel},{begin},{},{id},{},{}",
            agent / 6,
            begin + took,
            4 * n,
            40 * n
        )
        .unwrap();
    }
    directory(&wide, &text);
    let shown = |directory: &Path| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(["analyze", "-p"])
            .arg(directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let of_long = shown(&long);
    assert!(
        of_long.contains("│     2 │ 16000.00 │"),
        "two dispatches of vadd: {of_long}"
    );
    assert_eq!(of_long, shown(&wide));
}

#[test]
fn files_that_are_not_understood_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = |table: &str| directory(temporary.path(), table);
    let refused = |table: &str, what: &str| {
        directory(table);
        let failure = Workload::read(temporary.path(), &[]).unwrap_err();
        let said = failure.to_string();
        assert!(said.contains(what), "{said} is not about {what}");
    };
    let counters = [counter("SQ_WAVES", 4), counter("SQ_INSTS", 40)];
    let lines = pass(1_000_000, 0, &counters);
    let long = format!("{HEAD}{lines}");
    refused(
        &(long.clone() + &lines),
        "dispatch 0 has this counter twice: SQ_WAVES",
    );
    // The same counters in another run, or in another process.
    let again = pass(2_000_000, 0, &counters);
    refused(
        &(long.clone() + &again),
        "has each dispatch's counters twice",
    );
    refused(
        &long.replace(",Counter_Value", ",Value"),
        "has no column Counter_Value",
    );
    refused(
        &long.replace("Counter_Name,", "Name,"),
        "has no column Counter_Name",
    );
    refused(
        &long.replace("Dispatch_ID", "Number"),
        "has no column Dispatch_ID",
    );
    refused(&long.replace("GPU_ID", "Device"), "has no column GPU_ID");
    refused(
        &long.replacen(",4.0\n", ",many\n", 1),
        "line 2: no count: many",
    );
    refused(
        &long.replacen(",4.0\n", "\n", 1),
        "line 2: it has 14 of 15 fields",
    );
    refused(
        &long.replacen("4,0,", "gpu,0,", 1),
        "line 2: not a GPU number: gpu",
    );
    refused(HEAD, "no dispatch");

    // Long files in other words, and lines that are not of one dispatch each.
    let other = long.replace("Counter_Name,Counter_Value", "Metric,Amount");
    refused(&other, "line 2: Metric is not a number: SQ_WAVES");
    let wide = HEAD.replace("Counter_Name,Counter_Value", "SQ_WAVES");
    let line = "4,0,65536,256,0,0,8,0,16,vadd,1000,2000,1,";
    refused(
        &format!(
            "{wide}{line}4\n{}5\n",
            line.replace("1000,2000", "3000,4000")
        ),
        "has several lines for dispatch 0",
    );
    refused(
        &format!("{wide}{line}x\n"),
        "line 2: SQ_WAVES is not a number: x",
    );
    refused(
        &format!("{wide}{}4\n", line.replacen("4,", "MI300X,", 1)),
        "line 2: GPU_ID is not a number: MI300X",
    );
    // Several processes number their dispatches by themselves; a clock that went back is no
    // duration; and names of devices, queues and hosts are no counters.
    let wide = wide.replace("GPU_ID", "PID,Node,Queue_ID_1,GPU_ID");
    let line = "7,host,0x1,Agent 4,0,65536,256,0,0,8,0,16,vadd,5000,2000,1,4\n";
    directory(&format!("{wide}{line}{}", line.replacen("7,", "8,", 1)));
    let workload = Workload::read(temporary.path(), &[]).unwrap();
    assert_eq!(workload.frame.rows, 2);
    assert!(workload.frame.duration(0).is_nan());
    assert_eq!(column(&workload, "GPU_ID"), [4.0, 4.0]);
}
