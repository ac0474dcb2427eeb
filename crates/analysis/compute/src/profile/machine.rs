//! What is known about the machine and its GPU, under the names of `sysinfo.csv`.

#![expect(
    clippy::disallowed_methods,
    reason = "files of the kernel's and of this machine's"
)]

use crate::architecture::{self, Architecture, Model};
use crate::read::unusable;
use midair_agents::{Agent, AgentType, OwnFiles, Sources};
use midair_failure::Failure;
use std::fs;
use std::path::Path;

/// The GPU that is profiled, and what is known about it.
#[derive(Debug)]
pub struct Machine {
    /// The tables of its architecture.
    pub architecture: &'static Architecture,
    /// Its model, in upper case.
    pub model: String,
    agent: Agent,
}

/// Returns whether the counters of an architecture are known.
fn is_counted(name: &str) -> bool {
    midair_counters::Architecture::find(name).is_some()
}

impl Machine {
    /// Returns the first GPU that has tables, built in or, if the user has panels, whose counters are known.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(has_panels: bool) -> Result<Machine, Failure> {
        let sources = Sources::of_root(Path::new("/"))
            .with_environment(&OwnFiles, |name| std::env::var(name).ok());
        let agents = sources.read_through(&OwnFiles).map_err(|error| {
            unusable(format!("cannot list the GPUs of this machine: {error}"))
                .hint("profile needs AMD's kernel driver; analyze needs no GPU")
        })?;
        let gpus = agents
            .into_iter()
            .filter(|agent| agent.agent_type == AgentType::Gpu);
        let mut names = Vec::new();
        for agent in gpus {
            let countable =
                |of: &&Architecture| !of.panels.is_empty() || has_panels && is_counted(of.name);
            if let Some(architecture) = Architecture::named(&agent.name).filter(countable) {
                let model = model(architecture, u32::from(agent.device_id));
                let model = model.map_or(architecture.name, |model| model.name);
                return Ok(Machine {
                    architecture,
                    model: model.to_ascii_uppercase(),
                    agent,
                });
            }
            names.push(agent.name);
        }
        Err(match names.first() {
            None => unusable("this machine has no AMD GPU"),
            // A directory of panels would not help.
            Some(name) if !is_counted(name) && Architecture::named(name).is_some() => {
                let known: Vec<&str> = midair_counters::Architecture::all()
                    .iter()
                    .map(|it| it.name)
                    .collect();
                unusable(format!("cannot count on {name}: its counters are unknown")).hint(format!(
                    "known are the counters of {}; analyze reads workloads of {name} with --config-dir",
                    known.join(", ")
                ))
            }
            Some(name) => architecture::unknown(name),
        })
    }

    /// Returns the rows of `sysinfo.csv` in AMD's order. Unknown ones have no value.
    ///
    /// All values come from files of the kernel. AMD's program asks `amd-smi` for partitions,
    /// clocks and the version of the BIOS. `amd-smi` reads the same files, so it need not be
    /// installed (AMD-170).
    pub fn system(&self, name: &str, command: &str) -> Vec<(String, String)> {
        let agent = &self.agent;
        let device = format!("/sys/class/drm/renderD{}/device", agent.drm_render_minor);
        let word = |file: &str| {
            let text = fs::read_to_string(Path::new(&device).join(file)).unwrap_or_default();
            text.trim().to_owned()
        };
        let one = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let gfx9 = matches!(self.architecture.name, "gfx908" | "gfx90a");
        let compute = word("current_compute_partition");
        let memory = word("current_memory_partition");
        let xccs = match agent.num_xcc {
            0 => 1,
            xccs => xccs,
        };
        let channels = match self.architecture.name {
            "gfx908" | "gfx90a" => 32,
            _ => 16 * xccs,
        };
        let memory_channels = match (gfx9, memory.as_str()) {
            (true, _) => 32,
            (_, "NPS4") => 32,
            (_, "NPS8") => 16,
            (_, "NPS1") => 128,
            _ => channels,
        };
        let engines = agent.num_shader_banks.max(1);
        let scalar = agent.cu_count.div_ceil(engines).div_ceil(2) * engines;
        let clock = agent.mem_banks.iter().map(|bank| bank.mem_clk_max).max();
        let cache = |level: u32| {
            let sizes = agent.caches.iter().filter(|cache| cache.level == level);
            sizes.map(|cache| cache.size).max().filter(|size| *size > 0)
        };
        let number = |value: u64| match value {
            0 => String::new(),
            value => value.to_string(),
        };
        let line = |text: &str, key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key));
            let value = found
                .unwrap_or_default()
                .trim_start_matches([' ', '\t', ':', '=']);
            value.trim_matches('"').to_owned()
        };
        let release = one("/etc/os-release");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let rows: Vec<(&str, String)> = vec![
            ("workload_name", name.to_owned()),
            ("command", command.to_owned()),
            (
                "ip_blocks",
                "SQ|LDS|SQC|TA|TD|TCP|TCC|SPI|CPC|CPF".to_owned(),
            ),
            (
                "timestamp",
                now.map_or_else(|_| String::new(), |now| now.as_secs().to_string()),
            ),
            ("version", "3".to_owned()),
            ("hostname", one("/proc/sys/kernel/hostname")),
            ("cpu_model", line(&one("/proc/cpuinfo"), "model name")),
            ("sbios", one("/sys/class/dmi/id/bios_version")),
            ("linux_distro", line(&release, "PRETTY_NAME")),
            ("linux_kernel_version", one("/proc/sys/kernel/osrelease")),
            ("amd_gpu_kernel_version", one("/sys/module/amdgpu/version")),
            (
                "cpu_memory",
                line(&one("/proc/meminfo"), "MemTotal").replace(" kB", ""),
            ),
            (
                "gpu_memory",
                number(
                    agent
                        .mem_banks
                        .iter()
                        .map(|bank| bank.size_in_bytes / 1024)
                        .sum(),
                ),
            ),
            ("rocm_version", one("/opt/rocm/.info/version")),
            ("vbios", word("vbios_version")),
            ("compute_partition", compute),
            ("memory_partition", memory),
            (
                "gpu_series",
                self.model.split('_').next().unwrap_or_default().to_owned(),
            ),
            ("gpu_model", self.model.clone()),
            ("gpu_arch", self.architecture.name.to_owned()),
            ("gpu_chip_id", number(u64::from(agent.device_id))),
            (
                "gpu_l1",
                cache(1).map_or_else(String::new, |size| size.to_string()),
            ),
            (
                "gpu_l2",
                cache(2).map_or_else(String::new, |size| size.to_string()),
            ),
            ("cu_per_gpu", number(u64::from(agent.cu_count))),
            ("simd_per_cu", number(u64::from(agent.simd_per_cu))),
            ("se_per_gpu", number(u64::from(agent.num_shader_banks))),
            ("wave_size", number(u64::from(agent.wave_front_size))),
            (
                "workgroup_max_size",
                number(u64::from(agent.workgroup_max_size)),
            ),
            (
                "max_waves_per_cu",
                number(u64::from(agent.max_waves_per_cu)),
            ),
            ("max_sclk", number(u64::from(agent.max_engine_clk_fcompute))),
            ("max_mclk", number(u64::from(clock.unwrap_or(0)))),
            ("cur_sclk", current(&word("pp_dpm_sclk"))),
            ("cur_mclk", current(&word("pp_dpm_mclk"))),
            ("total_l2_chan", channels.to_string()),
            ("lds_banks_per_cu", "32".to_owned()),
            ("sqc_per_gpu", scalar.to_string()),
            ("pipes_per_gpu", "4".to_owned()),
            ("num_xcd", xccs.to_string()),
            ("num_hbm_channels", memory_channels.to_string()),
            ("num_memory_channels", memory_channels.to_string()),
        ];
        rows.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Machine {
    /// Gives the rows of `sysinfo.csv` the names of AMD's 3.9, and adds what that version has in addition.
    pub fn rename(&self, rows: &mut Vec<(String, String)>, directory: &Path) {
        rows.retain(|(name, _)| name != "num_hbm_channels");
        if let Some((name, value)) = rows.iter_mut().find(|(name, _)| name == "workload_name") {
            *name = "workload_path".to_owned();
            *value = directory.display().to_string();
        }
        let banks = match self.architecture.name {
            "gfx908" | "gfx90a" => 32,
            _ => 16,
        };
        for (before, name, value) in [
            ("wave_size", "sa_per_se", self.agent.simd_arrays_per_engine),
            ("total_l2_chan", "l2_banks", banks),
        ] {
            if let Some(place) = rows.iter().position(|(known, _)| known == before) {
                rows.insert(place, (name.to_owned(), value.to_string()));
            }
        }
    }
}

/// Returns the clock in MHz that amdgpu marks as the current one. A line of `pp_dpm_sclk` is like
/// `1: 2100Mhz *`.
fn current(states: &str) -> String {
    let marked = states.lines().find(|line| line.trim_end().ends_with('*'));
    let clock = marked.and_then(|line| line.split_once(':'));
    let digits = clock.map(|(_, clock)| clock.trim_start());
    digits.map_or_else(String::new, |clock| {
        clock.chars().take_while(char::is_ascii_digit).collect()
    })
}

fn model(architecture: &'static Architecture, chip: u32) -> Option<&'static Model> {
    architecture
        .models
        .iter()
        .find(|model| model.chips.contains(&chip))
}

#[cfg(test)]
mod tests {
    use super::current;

    #[test]
    fn the_marked_clock_is_the_current_one() {
        assert_eq!(current("0: 500Mhz\n1: 1305Mhz *\n2: 2100Mhz\n"), "1305");
        assert_eq!(current("S: 95Mhz *\n0: 500Mhz\n"), "95");
        for nothing in ["", "0: 500Mhz\n", "*", "no clock *"] {
            assert_eq!(current(nothing), "", "{nothing}");
        }
    }
}
