//! What several tests of `profile` need: a machine with a GPU, and a database as `rocprofv3` leaves
//! it.
#![allow(clippy::unwrap_used, dead_code)]

use rusqlite::Connection;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Writes a database of 40 dispatches. Of three, one has all four counters, one has TCC's, and
/// one has none; one of these last was counted alongside another dispatch.
pub fn database(file: &Path) {
    let mut text = String::from(
        "CREATE TABLE rocpd_info_agent_x (id INTEGER, name TEXT, product_name TEXT, type TEXT, absolute_index INTEGER, extdata TEXT);
         CREATE TABLE rocpd_info_kernel_symbol_x (id INTEGER, kernel_name TEXT, display_name TEXT, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER, sgpr_count INTEGER);
         CREATE TABLE rocpd_info_pmc_x (id INTEGER, name TEXT, symbol TEXT);
         CREATE TABLE rocpd_event_x (id INTEGER, stack_id INTEGER);
         CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER, event_id INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, start BIGINT, \"end\" BIGINT,
             grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
             group_segment_size INTEGER, private_segment_size INTEGER, extdata TEXT);
         CREATE TABLE rocpd_pmc_event_x (event_id INTEGER, pmc_id INTEGER, value REAL);
         INSERT INTO rocpd_info_agent_x VALUES (7, 'gfx942', 'MI300X', 'GPU', 4, '{\"wave_front_size\": 64}');
         INSERT INTO rocpd_info_kernel_symbol_x VALUES (1, 'vadd.kd', 'vadd(\"x\", int)', 8, 4, 16);
         INSERT INTO rocpd_info_pmc_x VALUES (1, 'CPF_CPF_STAT_BUSY', ''), (2, 'CPF_CPF_STAT_STALL', ''), (3, 'TCC_HIT_sum', ''), (4, 'TCC_MISS_sum', '');
         UPDATE rocpd_info_pmc_x SET symbol = name;",
    );
    for id in 0..40 {
        let (event, start) = (100 + id, 3_548_002_600_680_u64 + id * 10_000);
        let told = if id == 5 {
            "{\"counters\":\"shared\"}"
        } else {
            "{}"
        };
        let _ = write!(
            text,
            "INSERT INTO rocpd_event_x VALUES ({event}, {});
             INSERT INTO rocpd_kernel_dispatch_x VALUES ({id}, {event}, 7, 1, {}, {start}, {}, 128, 1, 1, 64, 1, 1, 256, 0, '{told}');",
            900 + id,
            id + 1,
            start + 500 + id
        );
        let (cpf, tcc) = match id % 3 {
            0 => (true, true),
            1 => (false, true),
            _ => (false, false),
        };
        let counts = [
            (cpf, 1, 1000 + id),
            (cpf, 2, 250 + id * id % 7),
            (tcc, 3, 800 + id),
            (tcc, 4, 200 + id % 5),
        ];
        for (_, counter, count) in counts.into_iter().filter(|(counted, ..)| *counted) {
            let _ = write!(
                text,
                "INSERT INTO rocpd_pmc_event_x VALUES ({event}, {counter}, {count});"
            );
        }
    }
    let database = Connection::open(file).unwrap();
    database
        .execute_batch(&format!("BEGIN; {text} COMMIT;"))
        .unwrap();
}

/// Writes the files of a machine with one modelled MI300X.
pub fn topology(at: &Path) {
    let node = at.join("nodes/0");
    fs::create_dir_all(&node).unwrap();
    fs::write(
        node.join("properties"),
        "cpu_cores_count 0\nsimd_count 1216\nmax_waves_per_simd 8\nlds_size_in_kb 64\nwave_front_size 64\n\
         array_count 32\nsimd_arrays_per_engine 1\ncu_per_simd_array 10\nsimd_per_cu 4\nmax_slots_scratch_cu 32\n\
         gfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\ndrm_render_minor 128\nnum_xcc 8\n\
         max_engine_clk_fcompute 2100\nmem_banks_count 0\n",
    )
    .unwrap();
    fs::write(node.join("gpu_id"), "1000\n").unwrap();
    fs::write(node.join("name"), "ip discovery\n").unwrap();
}

/// Runs `rocprof-compute` in a directory with a topology and a `collector`, and returns what it
/// printed.
pub fn compute(here: &Path, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(words)
        .current_dir(here)
        .env("AMD_KFD_TOPOLOGY", here.join("topology"))
        .env("ROCPROF", here.join("collector"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a script that stands in for `rocprofv3`. `$out` is the directory for its files, `$made`
/// the database.
pub fn collector(here: &Path, script: &str) {
    topology(&here.join("topology"));
    database(&here.join("made.db"));
    let file = here.join("collector");
    let script = format!(
        "#!/bin/sh\nmade={}\nwhile [ $# -gt 0 ]; do [ \"$1\" = --output-directory ] && out=$2; shift; done\n{script}\n",
        here.join("made.db").display()
    );
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the command in a directory that has a topology and a collector.
pub fn run(here: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(words)
        .current_dir(here)
        .env("AMD_KFD_TOPOLOGY", here.join("topology"))
        .env("ROCPROF", here.join("collector"))
        .output()
        .unwrap()
}

/// Returns what a command wrote to its standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
