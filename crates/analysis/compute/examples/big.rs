//! Time and memory of `analyze` for a million dispatches with thirty counters.
//!
//! ```console
//! $ cargo run --release -p midair-compute --example big [DISPATCHES [csv|rocpd [DIR]]]
//! ```
//!
//! Writes a directory in the form of AMD's 2025 version (csv) or 2026 version (rocpd), reads it and
//! fills all tables. With DIR, the directory is written there and kept, so that another program can
//! be measured on it.
#![allow(clippy::unwrap_used)]

use midair_compute::read::Workload;
use midair_compute::report::{Options, report};
use midair_compute::select::{Blocks, Dispatches};
use rusqlite::Connection;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
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
    let word = |place: usize| std::env::args().nth(place);
    let dispatches: u64 = word(1).map_or(1_000_000, |word| word.parse().unwrap());
    let is_rocpd = word(2).as_deref() == Some("rocpd");
    let temporary = tempfile::tempdir().unwrap();
    let directory = word(3).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    fs::create_dir_all(&directory).unwrap();
    system(&directory);
    let file = match is_rocpd {
        true => rocpd(&directory, dispatches),
        false => csv(&directory, dispatches),
    };
    let bytes = fs::metadata(&file).unwrap().len();
    let made = busy();

    let begin = Instant::now();
    let workload = Workload::read(&directory, &[]).unwrap();
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
    println!(
        "{dispatches} dispatches, {} counters, {} MB: read {:.2} s, with tables ({metrics} rows) {:.2} s; \
         at most {} MiB; processor time {:.2} s",
        COUNTERS.len(),
        bytes / 1_000_000,
        read.as_secs_f64(),
        all.as_secs_f64(),
        peak(),
        busy() - made
    );
}

/// Writes `sysinfo.csv`.
pub fn system(directory: &Path) {
    fs::write(
        directory.join("sysinfo.csv"),
        "gpu_arch,cu_per_gpu,se_per_gpu,wave_size,max_waves_per_cu,max_sclk,max_mclk,total_l2_chan,\
         lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
         gfx942,304,32,64,32,2100,1300,128,32,160,4,8,128\n",
    )
    .unwrap();
}

/// Pseudo-random numbers that look like counter values.
struct Random(u64);

impl Random {
    fn count(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        10_000 + self.0 % 10_000_000
    }
}

/// Writes a file with AMD's columns of 2025.
pub fn csv(directory: &Path, dispatches: u64) -> PathBuf {
    let file = directory.join("pmc_perf.csv");
    let mut out = BufWriter::new(fs::File::create(&file).unwrap());
    writeln!(
        out,
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,\
         Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Correlation_ID,Kernel_ID,{},Start_Timestamp,End_Timestamp",
        COUNTERS.join(",")
    )
    .unwrap();
    let mut random = Random(0x1234_5678_9abc_def1);
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
            write!(line, ",{}", random.count()).unwrap();
        }
        let start = 3_548_002_600_680 + id * 10_000;
        writeln!(out, "{line},{start},{}", start + 7000 + id % 977).unwrap();
    }
    out.flush().unwrap();
    file
}

/// Writes a rocpd database with the tables that are read, with AMD's columns.
pub fn rocpd(directory: &Path, dispatches: u64) -> PathBuf {
    let file = directory.join("pmc_perf_0.db");
    let mut database = Connection::open(&file).unwrap();
    database
        .execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             CREATE TABLE rocpd_info_agent_x (id INTEGER PRIMARY KEY, name TEXT, product_name TEXT, type TEXT, absolute_index INTEGER, extdata TEXT);
             CREATE TABLE rocpd_info_kernel_symbol_x (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER, sgpr_count INTEGER);
             CREATE TABLE rocpd_info_pmc_x (id INTEGER PRIMARY KEY, name TEXT, symbol TEXT);
             CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER,
                 queue_id INTEGER, stream_id INTEGER, start BIGINT, \"end\" BIGINT, private_segment_size INTEGER, group_segment_size INTEGER,
                 workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,
                 region_name_id INTEGER, event_id INTEGER, extdata TEXT);
             CREATE TABLE rocpd_pmc_event_x (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, pmc_id INTEGER, value REAL DEFAULT 0.0, extdata TEXT DEFAULT '{}');
             INSERT INTO rocpd_info_agent_x VALUES (1, 'gfx942', 'MI300X', 'GPU', 1, '{}');",
        )
        .unwrap();
    let change = database.transaction().unwrap();
    let mut random = Random(0x1234_5678_9abc_def1);
    for kernel in 0..40_i64 {
        let name = format!("void gemm<float, {kernel}>(float const*, int)");
        let row = (kernel, &name, &name, 8 + kernel);
        change
            .execute(
                "INSERT INTO rocpd_info_kernel_symbol_x VALUES (?1, ?2, ?3, ?4, 0, 16)",
                row,
            )
            .unwrap();
    }
    for (id, name) in COUNTERS.iter().enumerate() {
        change
            .execute(
                "INSERT INTO rocpd_info_pmc_x VALUES (?1, ?2, ?2)",
                (id as i64 + 1, name),
            )
            .unwrap();
    }
    {
        let mut dispatch = change
            .prepare(
                "INSERT INTO rocpd_kernel_dispatch_x VALUES (?1, '0b6d0a9c-5f6e-7a3b-8c1d-2e3f4a5b6c7d', 1, 7, 8, 1, ?2, ?1, 1, 1, ?3, ?4, 0, ?5, 256, 1, 1, ?6, 1, 1, 1, ?1, '{}')",
            )
            .unwrap();
        let mut event = change
            .prepare(
                "INSERT INTO rocpd_pmc_event_x (guid, event_id, pmc_id, value) VALUES ('0b6d0a9c-5f6e-7a3b-8c1d-2e3f4a5b6c7d', ?1, ?2, ?3)",
            )
            .unwrap();
        for id in 0..dispatches as i64 {
            let kernel = id % 40;
            let start = 3_548_002_600_680 + id * 10_000;
            let end = start + 7000 + id % 977;
            let grid = 65536 * (1 + kernel % 3);
            dispatch
                .execute((id + 1, kernel, start, end, kernel * 64, grid))
                .unwrap();
            for counter in 1..=COUNTERS.len() as i64 {
                event
                    .execute((id + 1, counter, random.count() as f64))
                    .unwrap();
            }
        }
    }
    change.commit().unwrap();
    file
}

/// Returns the most memory that was used so far, in MiB.
pub fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap() / 1024
}

/// Returns the processor time used so far, in seconds.
pub fn busy() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let busy = stat
        .split(' ')
        .next()
        .and_then(|word| word.parse::<u64>().ok());
    busy.unwrap_or(0) as f64 / 1e9
}
