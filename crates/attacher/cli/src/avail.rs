//! `rocprofv3-avail`: AMD's command that lists GPUs and their counters, and checks which counters are
//! collected together.

use crate::attach;
use crate::command;
use crate::counters::{self, Listed};
use crate::report::Report;
use clap::{Arg, ArgMatches, Command, value_parser};
use midair_agents::{Agent, AgentType};
use midair_counters::group::{first_fit, one};
use midair_failure::{Failure, Kind};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The width of AMD's keys.
const KEY: usize = 30;
/// The widths of its keys where it shows how GPUs sample.
const SHORT: usize = 8;
const LONG: usize = 20;
/// The width of a list of names where there is no terminal.
const WIDE: usize = 120;

/// The text below `rocprofv3-avail --help`.
pub(crate) const HELP: &str = "\
Examples:
  rocprofv3-avail list                       names of counters, by GPU
  rocprofv3-avail info --pmc SQ_WAVES        a counter: block and dimensions
  rocprofv3-avail pmc-check SQ_WAVES GRBM_COUNT
  rocprofv3-avail --arch gfx942 list         without a GPU";

/// The clap command.
pub fn command() -> Command {
    let boolean = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("BOOL")
            .num_args(0..=1)
            .default_missing_value("true")
            .help(help)
    };
    let names = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("NAME")
            .num_args(0..)
            .help(help)
    };
    Command::new("rocprofv3-avail")
        .about("List GPUs and their hardware counters, and check which are collected together")
        .after_help(HELP)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("device")
                .short('d')
                .long("device")
                .value_name("N")
                .value_parser(value_parser!(i32))
                .global(true)
                .help("Show only this GPU, counted from 0"),
        )
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("NAME")
                .global(true)
                .help("Show this architecture, such as gfx942, and not the machine's GPUs"),
        )
        .subcommand(
            Command::new("list")
                .about("List names of counters, or agents")
                .arg(boolean("pmc", "List names of counters (default)"))
                .arg(boolean("agent", "List GPUs with their properties"))
                .arg(boolean(
                    "spm",
                    "[not built yet] List counters that are streamed",
                ))
                .arg(boolean(
                    "pc-sampling",
                    "List GPUs that sample program counters",
                )),
        )
        .subcommand(
            Command::new("info")
                .about("Show counters in full, or GPUs with the names of their counters")
                .arg(names("pmc", "Show these counters, or all"))
                .arg(names(
                    "spm",
                    "[not built yet] Show counters that are streamed",
                ))
                .arg(names(
                    "pc-sampling",
                    "Show how GPUs sample program counters: method, unit, intervals",
                )),
        )
        .subcommand(
            Command::new("pmc-check")
                .about("Check that counters are collected together, in one pass")
                .arg(
                    Arg::new("pmc")
                        .value_name("NAME")
                        .num_args(0..)
                        .help("Counters, each also for one GPU: SQ_WAVES:device=0"),
                ),
        )
}

/// Runs the command line. Returns the exit code.
pub fn main(words: Vec<OsString>) -> u8 {
    let report = Report::new("rocprofv3-avail");
    run(&words, report).unwrap_or_else(|failure| report.failure(&failure))
}

fn run(words: &[OsString], report: Report) -> Result<u8, Failure> {
    let Some(matches) = command::parse_or_print(command(), words, report)? else {
        return Ok(0);
    };
    let arch = matches.get_one::<String>("arch").map(String::as_str);
    let mut gpus = counters::gpus(arch, &attach::environment()?)?;
    if let Some(device) = matches.get_one::<i32>("device") {
        gpus.retain(|gpu| gpu.number() == *device);
        if gpus.is_empty() {
            return Err(Failure::new(
                Kind::Usage,
                format!("there is no GPU {device}"),
            ));
        }
    }
    let text = match matches.subcommand() {
        Some(("list", matches)) => list(&gpus, matches, report.columns())?,
        Some(("info", matches)) => info(&gpus, matches, report.columns())?,
        Some(("pmc-check", matches)) => check(&gpus, matches)?,
        _ => command().render_help().to_string(),
    };
    report.text(text.as_bytes());
    Ok(0)
}

fn not_built(what: &str) -> Failure {
    Failure::new(Kind::NotBuilt, format!("{what} is not built yet"))
}

fn list(gpus: &[Listed], matches: &ArgMatches, columns: Option<usize>) -> Result<String, Failure> {
    let is_on = |name: &str| {
        let word = matches.get_one::<String>(name)?.to_ascii_lowercase();
        Some(["y", "yes", "t", "true", "on", "1"].contains(&word.as_str()))
    };
    if is_on("spm") == Some(true) {
        return Err(not_built("the streaming of counters"));
    }
    let mut text = String::new();
    if is_on("agent") == Some(true) {
        text += &agents(gpus);
    }
    let is_default = ["pmc", "agent", "pc-sampling"]
        .iter()
        .all(|name| is_on(name).is_none());
    if is_default || is_on("pmc") == Some(true) {
        for gpu in gpus {
            text += &pair("GPU", &gpu.number());
            text += &pair("Name", &gpu.name);
            text += &names(gpu, columns);
            text += "\n\n";
        }
    }
    if is_on("pc-sampling") == Some(true) {
        text += "Agents supporting PC Sampling\n\n";
        text += &sampled(gpus, false)?;
    }
    Ok(text)
}

fn info(gpus: &[Listed], matches: &ArgMatches, columns: Option<usize>) -> Result<String, Failure> {
    if matches.contains_id("spm") {
        return Err(not_built("the streaming of counters"));
    }
    let is_sampling = matches.contains_id("pc-sampling");
    if !matches.contains_id("pmc") {
        if is_sampling {
            return sampled(gpus, true);
        }
        let of_each = gpus.iter().map(|gpu| {
            let of_it = std::slice::from_ref(gpu);
            agents(of_it) + &names(gpu, columns) + "\n\n"
        });
        return Ok(of_each.collect());
    }
    let wanted: Vec<&String> = matches.get_many("pmc").into_iter().flatten().collect();
    let mut text = String::new();
    for gpu in gpus {
        text += &format!("GPU:{}\nName:{}\n", gpu.number(), gpu.name);
        for name in &wanted {
            if !gpu.counters.iter().any(|counter| counter.name == *name) {
                return Err(unknown(gpu, name));
            }
        }
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| *it == name);
        for counter in gpu.counters.iter().filter(|it| is_wanted(it.name)) {
            text += &format!("{counter}\n\n");
        }
    }
    if is_sampling {
        text += &sampled(gpus, true)?;
    }
    Ok(text)
}

/// Returns the GPUs that sample program counters, each with how it does.
fn sampled(gpus: &[Listed], in_full: bool) -> Result<String, Failure> {
    let machine = counters::agents();
    let (mut text, mut whys) = (String::new(), Vec::new());
    for gpu in gpus {
        let agent = machine.iter().find(|agent| {
            agent.agent_type == AgentType::Gpu
                && gpu.place.is_some_and(|(_, node)| node == agent.node_id)
        });
        let found = match agent {
            Some(agent) => midair_session::sampling(agent.gpu_id),
            None => Err("an architecture that was named is no GPU of this machine".to_owned()),
        };
        match found {
            Ok(found) => {
                text += &format!(
                    "{:SHORT$}:\t{}\n{:SHORT$}:\t{}\n",
                    "GPU",
                    gpu.number(),
                    "Name",
                    gpu.name
                );
                if in_full {
                    text += &format!("{:SHORT$}:\n", "configs");
                    text.extend(found.ways.iter().map(configuration));
                }
                text += "\n\n";
            }
            Err(why) => whys.push(format!("GPU {}: {why}", gpu.number())),
        }
    }
    match text.is_empty() {
        true => Err(Failure::new(
            Kind::NoCounters,
            format!("no GPU samples program counters: {}", whys.join("; ")),
        )),
        false => Ok(text),
    }
}

/// Returns a way to sample, under AMD's names.
fn configuration(way: &midair_session::Way) -> String {
    let flags = match way.is_power_of_two {
        true => "interval pow2",
        false => "none",
    };
    let unit = if way.unit == "cycles" {
        "cycle"
    } else {
        way.unit
    };
    let line = |key: &str, value: &dyn std::fmt::Display| format!("   {key:LONG$}:\t{value}\n");
    line("Method", &way.method)
        + &line("Unit", &unit)
        + &line("Min_Interval", &way.least)
        + &line("Max_Interval", &way.most)
        + &line("Flags", &flags)
        + "\n\n"
}

fn unknown(gpu: &Listed, name: &str) -> Failure {
    Failure::new(
        Kind::Usage,
        format!("GPU {} ({}) has no counter {name}", gpu.number(), gpu.name),
    )
    .hint("rocprofv3-avail list names its counters")
}

/// Checks that the counters of each GPU are collected in one pass.
fn check(gpus: &[Listed], matches: &ArgMatches) -> Result<String, Failure> {
    let mut of_gpus: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for word in matches.get_many::<String>("pmc").into_iter().flatten() {
        let (name, devices) = devices(word)?;
        for device in devices.unwrap_or_else(|| gpus.iter().map(Listed::number).collect()) {
            of_gpus.entry(device).or_default().push(name);
        }
    }
    if of_gpus.is_empty() {
        return Err(Failure::new(Kind::Usage, "no counters to check")
            .hint("as in rocprofv3-avail pmc-check SQ_WAVES GRBM_COUNT"));
    }
    let mut text = String::new();
    for (device, names) in &of_gpus {
        let Some(gpu) = gpus.iter().find(|gpu| gpu.number() == *device) else {
            return Err(Failure::new(
                Kind::Usage,
                format!("there is no GPU {device}"),
            ));
        };
        let Some(architecture) = gpu.architecture else {
            let what = format!("the counters of GPU {device} ({}) are unknown", gpu.name);
            return Err(Failure::new(Kind::NoCounters, what));
        };
        one(architecture, names).map_err(|error| {
            let failure = Failure::new(
                Kind::Usage,
                format!("GPU {device} cannot collect these counters together: {error}"),
            );
            let passes = first_fit(architecture, names, &[]).unwrap_or_default();
            let pass = |group: &midair_counters::group::Group| {
                let names: Vec<&str> = group.counters.iter().map(|it| it.name).collect();
                names.join(" ")
            };
            let passes: Vec<String> = passes.iter().map(pass).collect();
            match passes.len() {
                0 | 1 => failure,
                count => failure.hint(format!("in {count} passes: {}", passes.join("; "))),
            }
        })?;
        text += &format!(
            "Following input counters can be collected together on GPU:{device}\t{}\n",
            names.join("\t")
        );
    }
    Ok(text)
}

/// Returns a counter's name, and the GPUs that the word limits it to: `SQ_WAVES:device=0,device=1`.
fn devices(word: &str) -> Result<(&str, Option<Vec<i32>>), Failure> {
    let Some((name, qualifiers)) = word.split_once(':') else {
        return Ok((word, None));
    };
    let number = |qualifier: &str| {
        qualifier
            .trim()
            .strip_prefix("device=")?
            .trim()
            .parse()
            .ok()
    };
    let all: Option<Vec<i32>> = qualifiers.split(',').map(number).collect();
    let bad = || {
        Failure::new(Kind::Usage, format!("cannot read the GPUs of {word}"))
            .hint("as in SQ_WAVES:device=0,device=1")
    };
    Ok((name, Some(all.ok_or_else(bad)?)))
}

fn pair(key: &str, value: &dyn std::fmt::Display) -> String {
    format!("{key:KEY$}:\t{value}\n")
}

/// Returns the names of a GPU's counters, in columns.
fn names(gpu: &Listed, columns: Option<usize>) -> String {
    let widest = gpu.counters.iter().map(|counter| counter.name.len()).max();
    let Some(widest) = widest else {
        return format!("{:KEY$}\n\n", "No PMC counters supported");
    };
    let in_a_line = (columns.unwrap_or(WIDE) / (widest + 1)).max(1);
    let mut text = format!("{:KEY$}:\n\n", "PMC");
    for line in gpu.counters.chunks(in_a_line) {
        let names: Vec<String> = line
            .iter()
            .map(|counter| format!("{:widest$}", counter.name))
            .collect();
        text += &format!("{}\n", names.join(" "));
    }
    text
}

/// Returns the properties of the GPUs, under AMD's names.
fn agents(gpus: &[Listed]) -> String {
    let machine = counters::agents();
    let of_each = gpus.iter().map(|gpu| {
        let heading = format!("GPU:{}\n\n", gpu.number());
        let agent = machine.iter().find(|agent| {
            agent.agent_type == AgentType::Gpu
                && gpu.place.is_some_and(|(_, node)| node == agent.node_id)
        });
        match agent {
            Some(agent) => heading + &properties(agent) + "\n\n",
            // An architecture that was named is no agent.
            None => heading + &pair("name", &gpu.name) + "\n\n",
        }
    });
    of_each.collect()
}

fn properties(agent: &Agent) -> String {
    let sizes =
        |of: midair_agents::Dim3| format!("{{'x': {}, 'y': {}, 'z': {}}}", of.x, of.y, of.z);
    let seen = agent.runtime_visibility;
    let [hsa, hip, rccl, rocdecode] = [seen.hsa, seen.hip, seen.rccl, seen.rocdecode].map(u8::from);
    let mut text = String::new();
    for (key, value) in [
        ("cpu_cores_count", u64::from(agent.cpu_cores_count)),
        ("simd_count", agent.simd_count.into()),
        ("max_waves_per_simd", agent.max_waves_per_simd.into()),
    ] {
        text += &pair(key, &value);
    }
    text += &pair(
        "runtime_visibility",
        &format!("{{'hsa': {hsa}, 'hip': {hip}, 'rccl': {rccl}, 'rocdecode': {rocdecode}}}"),
    );
    for (key, value) in [
        ("wave_front_size", u64::from(agent.wave_front_size)),
        ("num_xcc", agent.num_xcc.into()),
        ("cu_count", agent.cu_count.into()),
        ("array_count", agent.array_count.into()),
        ("num_shader_banks", agent.num_shader_banks.into()),
        (
            "simd_arrays_per_engine",
            agent.simd_arrays_per_engine.into(),
        ),
        ("cu_per_simd_array", agent.cu_per_simd_array.into()),
        ("simd_per_cu", agent.simd_per_cu.into()),
        ("gfx_target_version", agent.gfx_target_version.into()),
        ("max_waves_per_cu", agent.max_waves_per_cu.into()),
        ("gpu_id", agent.gpu_id),
    ] {
        text += &pair(key, &value);
    }
    for (key, value) in [
        ("workgroup_max_dim", sizes(agent.workgroup_max_dim)),
        ("grid_max_dim", sizes(agent.grid_max_dim)),
        ("name", agent.name.clone()),
        ("vendor_name", agent.vendor_name.clone()),
        ("product_name", agent.product_name.clone()),
        ("model_name", agent.model_name.clone()),
        ("node_id", agent.node_id.to_string()),
        ("logical_node_id", agent.logical_node_id.to_string()),
        (
            "logical_node_type_id",
            agent.logical_node_type_id.to_string(),
        ),
    ] {
        text += &pair(key, &value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_settings::Settings;

    fn answer(line: &str) -> Result<String, Failure> {
        let matches = command().try_get_matches_from(line.split(' '));
        let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
        let gpus = counters::gpus(Some("gfx942"), &Settings::new())?;
        match matches.subcommand().unwrap() {
            ("list", matches) => list(&gpus, matches, None),
            ("info", matches) => info(&gpus, matches, None),
            (_, matches) => check(&gpus, matches),
        }
    }

    #[test]
    fn names_are_listed_in_columns() {
        let text = answer("rocprofv3-avail list").unwrap();
        let start = format!(
            "{:30}:\t0\n{:30}:\tgfx942\n{:30}:\n\n",
            "GPU", "Name", "PMC"
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains(" SQ_WAVES "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120));
        assert_eq!(answer("rocprofv3-avail list --pmc").unwrap(), text);
        assert_eq!(answer("rocprofv3-avail list --pmc false").unwrap(), "");
        assert!(
            answer("rocprofv3-avail list --agent")
                .unwrap()
                .starts_with("GPU:0\n\nname  ")
        );
        for line in ["list --spm", "info --spm"] {
            let refused = answer(&format!("rocprofv3-avail {line}")).unwrap_err();
            assert_eq!(refused.kind, Kind::NotBuilt, "{line}");
        }
    }

    #[test]
    fn ways_to_sample_have_amds_names() {
        let way = midair_session::Way {
            method: "stochastic",
            unit: "cycles",
            least: 256,
            most: 1 << 31,
            is_power_of_two: true,
        };
        let text = configuration(&way);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split(':').map(str::trim).collect())
            .collect();
        assert_eq!(lines[0], ["Method", "stochastic"]);
        assert_eq!(lines[1], ["Unit", "cycle"]);
        assert_eq!(lines[2], ["Min_Interval", "256"]);
        assert_eq!(lines[3], ["Max_Interval", "2147483648"]);
        assert_eq!(lines[4], ["Flags", "interval pow2"]);
        assert!(
            text.starts_with(&format!("   {:20}:\t", "Method")),
            "{text}"
        );
        let refused = answer("rocprofv3-avail info --pc-sampling").unwrap_err();
        assert!(
            refused.what.contains("is no GPU of this machine"),
            "{}",
            refused.what
        );
        // Both are asked for, and both are answered.
        let both = answer("rocprofv3-avail info --pmc SQ_WAVES --pc-sampling").unwrap_err();
        assert_eq!(both.what, refused.what);
    }

    #[test]
    fn counters_are_shown_in_full() {
        let text = answer("rocprofv3-avail info --pmc SQ_WAVES GRBM_COUNT").unwrap();
        assert!(text.starts_with("GPU:0\nName:gfx942\n"), "{text}");
        assert_eq!(text.matches("Counter_Name").count(), 2, "{text}");
        let all = answer("rocprofv3-avail info --pmc").unwrap();
        assert!(all.matches("Counter_Name").count() > 100);
        let text = answer("rocprofv3-avail info").unwrap();
        assert!(
            text.contains("PMC  ") && text.contains("SQ_WAVES"),
            "{text}"
        );
        let refused = answer("rocprofv3-avail info --pmc NONE_SUCH").unwrap_err();
        assert!(
            refused.what.contains("has no counter NONE_SUCH"),
            "{}",
            refused.what
        );
    }

    #[test]
    fn counters_of_one_pass_are_checked() {
        let text = answer("rocprofv3-avail pmc-check SQ_WAVES GRBM_COUNT:device=0").unwrap();
        assert_eq!(
            text,
            "Following input counters can be collected together on GPU:0\tSQ_WAVES\tGRBM_COUNT\n"
        );
        let many = "SQ_WAVES SQ_INSTS_VALU SQ_INSTS_SALU SQ_INSTS_SMEM SQ_INSTS_LDS SQ_BUSY_CYCLES \
                    SQ_WAVE_CYCLES SQ_WAIT_INST_ANY SQ_ACTIVE_INST_VALU";
        let refused = answer(&format!("rocprofv3-avail pmc-check {many}")).unwrap_err();
        assert!(refused.what.contains("cannot collect"), "{}", refused.what);
        assert!(
            refused.hint.starts_with("in 2 passes: SQ_WAVES "),
            "{}",
            refused.hint
        );
        for (line, why) in [
            ("pmc-check", "no counters"),
            ("pmc-check SQ_WAVES:device=7", "no GPU 7"),
            ("pmc-check SQ_WAVES:gpu=0", "cannot read the GPUs"),
            ("pmc-check NONE_SUCH", "NONE_SUCH"),
        ] {
            let refused = answer(&format!("rocprofv3-avail {line}")).unwrap_err();
            assert!(refused.what.contains(why), "{line}: {}", refused.what);
        }
        command().debug_assert();
    }
}
