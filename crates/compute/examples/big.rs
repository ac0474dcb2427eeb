//! Time and memory of `analyze` for a million dispatches with thirty counters.
//!
//! ```console
//! $ cargo run --release -p midair-compute --example big [DISPATCHES]
//! ```
//!
//! Writes a directory of AMD's 2025 form, reads it and fills all tables.
#![allow(clippy::unwrap_used)]

use midair_compute::read::Workload;
use midair_compute::report::{Options, report};
use midair_compute::select::{Blocks, Dispatches};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write};
use std::time::Instant;

const COUNTERS: [&str; 30] = [
    "GRBM_GUI_ACTIVE",
    "GRBM_COUNT",
    "SQ_WAVES",
    "SQ_BUSY_CYCLES",
    "SQ_BUSY_CU_CYCLES",
    "SQ_WAVE_CYCLES",
    "SQ_INSTS",
    "SQ_INSTS_VALU",
    "SQ_INSTS_SALU",
    "SQ_INSTS_SMEM",
    "SQ_INSTS_LDS",
    "SQ_INSTS_VMEM",
    "SQ_ACTIVE_INST_VALU",
    "SQ_ACTIVE_INST_SCA",
    "SQ_ACTIVE_INST_MISC",
    "SQ_ACTIVE_INST_FLAT",
    "SQ_ACTIVE_INST_VMEM",
    "SQ_ACTIVE_INST_ANY",
    "SQ_WAIT_ANY",
    "SQ_WAIT_INST_ANY",
    "SQ_LDS_BANK_CONFLICT",
    "SQ_LDS_IDX_ACTIVE",
    "TCC_HIT_sum",
    "TCC_MISS_sum",
    "TCC_REQ_sum",
    "TCC_BUSY_sum",
    "SPI_CSN_WAVE",
    "SPI_CSN_NUM_THREADGROUPS",
    "CPF_CPF_STAT_BUSY",
    "CPF_CPF_STAT_IDLE",
];

fn main() {
    let dispatches: u64 = std::env::args()
        .nth(1)
        .map_or(1_000_000, |word| word.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    fs::write(
        temporary.path().join("sysinfo.csv"),
        "gpu_arch,cu_per_gpu,se_per_gpu,wave_size,max_waves_per_cu,max_sclk,max_mclk,total_l2_chan,\
         lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
         gfx942,304,32,64,32,2100,1300,128,32,160,4,8,128\n",
    )
    .unwrap();
    let file = temporary.path().join("pmc_perf.csv");
    let mut out = BufWriter::new(fs::File::create(&file).unwrap());
    writeln!(
        out,
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,\
         Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Correlation_ID,Kernel_ID,{},Start_Timestamp,End_Timestamp",
        COUNTERS.join(",")
    )
    .unwrap();
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut line = String::new();
    for id in 0..dispatches {
        let kernel = id % 40;
        let grid = 65536 * (1 + kernel % 3);
        line.clear();
        write!(
            line,
            "{id},{},{grid},256,{},0,{},0,16,64,\"void gemm<float, {kernel}>(float const*, int)\",{id},{kernel}",
            id % 8,
            kernel * 64,
            8 + kernel
        )
        .unwrap();
        for _ in COUNTERS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            write!(line, ",{}", 10_000 + random % 10_000_000).unwrap();
        }
        let start = 3_548_002_600_680 + id * 10_000;
        writeln!(out, "{line},{start},{}", start + 7000 + id % 977).unwrap();
    }
    out.flush().unwrap();
    drop(out);
    let bytes = fs::metadata(&file).unwrap().len();

    let begin = Instant::now();
    let workload = Workload::read(temporary.path(), &[]).unwrap();
    let read = begin.elapsed();
    let options = Options::default();
    let filled = report(
        &workload,
        &Blocks::default(),
        &Dispatches::default(),
        &options,
    )
    .unwrap();
    let all = begin.elapsed();
    let metrics: usize = filled.sheets.iter().map(|sheet| sheet.lines.len()).sum();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let busy: u64 = stat
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    println!(
        "{dispatches} dispatches, {} counters, {} MB: read {:.2} s, with tables ({metrics} rows) {:.2} s; \
         {}; processor time with making the file {:.2} s",
        COUNTERS.len(),
        bytes / 1_000_000,
        read.as_secs_f64(),
        all.as_secs_f64(),
        peak.split_whitespace().collect::<Vec<_>>().join(" "),
        busy as f64 / 1e9
    );
}
