//! Lists the counters that exist: `midair counters`, and `rocprofv3 --list-avail` in AMD's words.

use clap::{Arg, ArgMatches, Command};
use midair_agents::{Agent, AgentType, OwnFiles, Sources};
use midair_counters::architecture::{Architecture, Shape};
use midair_counters::available::Available;
use midair_counters::definitions::Definitions;
use midair_counters::wire::Gpu;
use midair_counters::{Definition, Dimension};
use midair_failure::{Failure, Kind};
use midair_session::as_real_user;
use midair_settings::{EXTRA_COUNTERS, Given, Resolved, Settings, resolve};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

use crate::attach;
use crate::command::refused;
use crate::doctor::json_argument;
use crate::report::Report;

/// The version of the json's schema. It is raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;
/// The most bytes of a file of definitions that are read. The parser refuses a longer file.
const MOST_BYTES: u64 = (4 << 20) + 1;
/// The text of both lists about samples of the program counter.
const NO_SAMPLES: &str = "host_trap and stochastic, as far as the driver offers them";

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("counters")
                .about("List the hardware counters of this machine's GPUs, or of a given architecture")
        .long_about(
            "List the hardware counters of this machine's GPUs, or of a given architecture: name, hardware block or expression, \
             and dimensions. This needs neither an attach nor AMD's libraries.",
        )
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("NAME")
                .help("List the counters of this architecture, such as gfx942"),
        )
        .arg(
            Arg::new("extra-counters")
                .short('E')
                .long("extra-counters")
                .value_name("FILE")
                .help("Add the counter definitions in this YAML file"),
        )
        .arg(json_argument())
}

pub(crate) fn run(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let inherited = attach::environment()?;
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let mut settings = inherited;
    if let Some(file) = text("extra-counters") {
        settings.set(EXTRA_COUNTERS, &contents(file)?);
    }
    let gpus = gpus(text("arch"), &settings)?;
    if matches.get_flag("json") {
        report.json(&document(&gpus));
    } else {
        report.text(lines(&gpus).as_bytes());
    }
    Ok(0)
}

/// Runs `rocprofv3 --list-avail`.
pub(crate) fn list_avail(
    arch: Option<&str>,
    settings: &Settings,
    report: Report,
) -> Result<u8, Failure> {
    report.text(lines(&gpus(arch, settings)?).as_bytes());
    Ok(0)
}

/// Returns the settings of a command line. The contents of the file that `--extra-counters` names
/// replace its name, as in AMD's tool.
pub(crate) fn resolved(given: &Given, inherited: &Settings) -> Result<Resolved, Failure> {
    let cwd = std::env::current_dir().ok();
    let mut resolved = resolve(given, inherited, cwd.as_deref()).map_err(refused)?;
    if let Some(file) = given.text("extra-counters") {
        let text = contents(file)?;
        // This happens before a target is touched, and the error has the name of the file.
        Definitions::read(&text)
            .map_err(|error| Failure::new(Kind::Usage, format!("{file}: {error}")))?;
        resolved.settings.set(EXTRA_COUNTERS, &text);
    }
    Ok(resolved)
}

/// Reads a file of the user's.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own file, with the user's rights"
)]
fn contents(file: &str) -> Result<String, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(Kind::Usage, format!("{file}: {error}"));
    let read = || {
        let mut text = String::new();
        std::fs::File::open(file)?
            .take(MOST_BYTES)
            .read_to_string(&mut text)?;
        Ok::<String, std::io::Error>(text)
    };
    as_real_user(read).flatten().map_err(|error| failed(&error))
}

/// A GPU, and what it counts.
pub(crate) struct Listed {
    /// Its number among the GPUs and the driver's node, or none for a GPU that was named.
    pub(crate) place: Option<(i32, u32)>,
    /// "gfx942".
    pub(crate) name: String,
    product: String,
    shape: Shape,
    /// The architecture, or None for a GPU whose counters are not known.
    pub(crate) architecture: Option<&'static Architecture>,
    pub(crate) counters: Vec<Available>,
}

impl Listed {
    /// Returns its number among the GPUs.
    pub(crate) fn number(&self) -> i32 {
        self.place.map_or(0, |(number, _)| number)
    }
}

/// Returns the GPUs of the machine, or the one of this name.
pub(crate) fn gpus(arch: Option<&str>, settings: &Settings) -> Result<Vec<Listed>, Failure> {
    let added = match settings.text(EXTRA_COUNTERS) {
        Some(text) => Definitions::read(text)
            .map_err(|error| Failure::new(Kind::Usage, format!("extra counters: {error}")))?,
        None => Definitions::default(),
    };
    let with = |architecture: &'static Architecture| {
        let more = architecture.with(&added);
        more.map_err(|error| Failure::new(Kind::Usage, format!("extra counters: {error}")))
    };
    let known = || {
        let names: Vec<&str> = Architecture::all().iter().map(|a| a.name).collect();
        format!("known are {}", names.join(", "))
    };
    if let Some(arch) = arch {
        let Some(architecture) = Architecture::find(arch) else {
            let what = format!("the counters of '{arch}' are unknown");
            return Err(Failure::new(Kind::Usage, what).hint(known()));
        };
        let architecture = with(architecture)?;
        return Ok(vec![Listed {
            place: None,
            name: architecture.name.to_owned(),
            product: String::new(),
            shape: architecture.shape,
            counters: architecture.available(architecture.shape),
            architecture: Some(architecture),
        }]);
    }
    let agents = agents();
    let gpus = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu);
    let mut listed = Vec::new();
    for agent in gpus {
        let shape = shape(agent);
        let architecture = Architecture::find(&agent.name).map(with).transpose()?;
        listed.push(Listed {
            place: Some((agent.logical_node_type_id, agent.node_id)),
            name: agent.name.clone(),
            product: agent.product_name.clone(),
            shape,
            counters: architecture.map_or(Vec::new(), |a| a.available(shape)),
            architecture,
        });
    }
    if listed.is_empty() {
        let what = "AMD's driver lists no GPU on this machine";
        return Err(Failure::new(Kind::NoCounters, what)
            .hint(format!("give one, as in --arch gfx942; {}", known())));
    }
    Ok(listed)
}

/// Returns the machine's agents, or none where there is no driver.
pub(crate) fn agents() -> Vec<Agent> {
    let sources = Sources::of_root(Path::new("/"));
    // If this program has more rights than its user, the user must not choose the files that it
    // reads.
    let sources = as_real_user(|| {
        sources
            .with_environment(&OwnFiles, |name| std::env::var(name).ok())
            .read()
            .unwrap_or_default()
    });
    sources.unwrap_or_default()
}

fn shape(agent: &Agent) -> Shape {
    let gpu = Gpu {
        xccs: agent.num_xcc.max(1),
        engines: agent.num_shader_banks,
        units: agent.cu_count,
        arrays: agent.simd_arrays_per_engine,
        ..Gpu::default()
    };
    Shape {
        xccs: gpu.xccs,
        engines: gpu.engines,
        units: gpu.units,
        arrays: gpu.arrays,
    }
}

/// Returns the lines of AMD's list: each GPU's number and name, its counters, and which samples it
/// offers.
fn lines(gpus: &[Listed]) -> String {
    let mut text = String::new();
    for gpu in gpus {
        text += &format!("GPU:{}\nName:{}\n", gpu.number(), gpu.name);
        if gpu.architecture.is_none() {
            text += "The counters of this GPU are unknown.\n\n";
        }
        for counter in &gpu.counters {
            text += &format!("{counter}\n");
        }
    }
    text += &format!("PC sampling of these GPUs: {NO_SAMPLES}.\n");
    text
}

/// Returns the document. Its schema: `version`; `gpus`, each with `gpu` and `node` (null for one
/// that was named), `name`, `product`, `shape`, `known`, `blocks` (`name`, `counters`: how many at
/// once for each instance), `counters` (`name`, `description`, `dimensions` as `name` and
/// `instances`, and either `block` and `event` or `expression`), and `pc_sampling`, the list of its
/// configurations.
fn document(gpus: &[Listed]) -> Value {
    let gpus: Vec<Value> = gpus.iter().map(gpu).collect();
    json!({"version": SCHEMA, "gpus": gpus})
}

fn gpu(gpu: &Listed) -> Value {
    let counters: Vec<Value> = gpu.counters.iter().map(counter).collect();
    let blocks = gpu.architecture.map_or(&[][..], |a| a.blocks).iter();
    let blocks: Vec<Value> = blocks
        .map(|block| json!({"name": block.name, "counters": block.counters}))
        .collect();
    let Shape {
        xccs,
        engines,
        units,
        arrays,
    } = gpu.shape;
    json!({
        "gpu": gpu.place.map(|(number, _)| number),
        "node": gpu.place.map(|(_, node)| node),
        "name": gpu.name,
        "product": gpu.product,
        "shape": {"xccs": xccs, "shader_engines": engines, "compute_units": units, "shader_arrays_per_engine": arrays},
        "known": gpu.architecture.is_some(),
        "blocks": blocks,
        "counters": counters,
        "pc_sampling": [],
    })
}

fn counter(counter: &Available) -> Value {
    let dimension = |(dimension, instances): &(Dimension, u32)| json!({"name": dimension.name(), "instances": instances});
    let dimensions: Vec<Value> = counter.dimensions.iter().map(dimension).collect();
    let mut value = json!({
        "name": counter.name,
        "description": counter.description,
        "dimensions": dimensions,
    });
    match counter.definition {
        Definition::Basic { block, event } => {
            value["block"] = block.into();
            value["event"] = event.into();
        }
        Definition::Derived { expression } => value["expression"] = expression.into(),
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDED: &str = "rocprofiler-sdk:\n  counters:\n  - name: MINE\n    description: of mine\n    definitions:\n    \
        - architectures: [gfx942]\n      expression: 2*CU_NUM\n";

    #[test]
    fn a_gpu_that_is_named_needs_no_machine() {
        let gpus = gpus(Some("gfx942:sramecc+"), &Settings::new()).unwrap();
        let text = lines(&gpus);
        assert!(text.starts_with("GPU:0\nName:gfx942\nCounter_Name        :\t"));
        assert!(
            text.contains("\nCounter_Name        :\tSQ_WAVES\n"),
            "{text}"
        );
        assert!(text.ends_with("\n\nPC sampling of these GPUs: host_trap and stochastic, as far as the driver offers them.\n"));
        let json = document(&gpus);
        let gpu = &json["gpus"][0];
        assert_eq!(gpu["name"], "gfx942");
        assert!(gpu["gpu"].is_null());
        let counters = gpu["counters"].as_array().unwrap();
        let waves = counters.iter().find(|c| c["name"] == "SQ_WAVES").unwrap();
        assert_eq!(
            (&waves["block"], &waves["event"]),
            (&json!("SQ"), &json!(4))
        );
        assert_eq!(
            waves["dimensions"],
            json!([
                {"name": "DIMENSION_XCC", "instances": 8},
                {"name": "DIMENSION_INSTANCE", "instances": 1},
                {"name": "DIMENSION_SHADER_ENGINE", "instances": 4},
            ])
        );
        let util = counters.iter().find(|c| c["name"] == "GPU_UTIL").unwrap();
        assert!(util["expression"].is_string() && util.get("block").is_none());
        let blocks = gpu["blocks"].as_array().unwrap();
        assert!(blocks.contains(&json!({"name": "SQ", "counters": 8})));
    }

    #[test]
    fn what_is_not_known_is_said_with_what_is() {
        let failure = gpus(Some("gfx900"), &Settings::new()).err().unwrap();
        assert_eq!(failure.what, "the counters of 'gfx900' are unknown");
        assert!(failure.hint.contains("gfx942"), "{}", failure.hint);
        let unknown = Listed {
            place: Some((1, 3)),
            name: "gfx900".into(),
            product: String::new(),
            shape: Architecture::all()[0].shape,
            architecture: None,
            counters: Vec::new(),
        };
        let text = lines(std::slice::from_ref(&unknown));
        assert!(text.starts_with("GPU:1\nName:gfx900\nThe counters of this GPU are unknown.\n"));
        assert_eq!(document(&[unknown])["gpus"][0]["known"], false);
    }

    #[test]
    fn added_counters_are_in_the_list() {
        let settings = Settings::from_iter([(EXTRA_COUNTERS, ADDED)]);
        let text = lines(&gpus(Some("gfx942"), &settings).unwrap());
        assert!(
            text.contains("\tMINE\nDescription         :\tof mine\n"),
            "{text}"
        );
        let wrong = ADDED.replace("CU_NUM", "CU_NUMBER");
        let settings = Settings::from_iter([(EXTRA_COUNTERS, wrong.as_str())]);
        let failure = gpus(Some("gfx942"), &settings).err().unwrap();
        assert!(
            failure.what.contains("near it are CU_NUM"),
            "{}",
            failure.what
        );
    }

    #[test]
    fn the_file_s_contents_become_the_setting() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("more.yaml"), ADDED).unwrap();
        let resolve = |file: &str| {
            let mut given = Given::new();
            let option = midair_settings::options::option("extra-counters").unwrap();
            let file = dir.path().join(file).to_str().unwrap().to_owned();
            given.give(option, &[file]).unwrap();
            resolved(&given, &Settings::new())
        };
        let settings = resolve("more.yaml").unwrap().settings;
        assert_eq!(settings.text(EXTRA_COUNTERS), Some(ADDED));
        let missing = resolve("none.yaml").err().unwrap();
        assert!(missing.what.contains("/none.yaml: "), "{}", missing.what);
        std::fs::write(dir.path().join("bad.yaml"), "a: [\n").unwrap();
        let bad = resolve("bad.yaml").err().unwrap();
        let wanted = "/bad.yaml: line 1: unclosed brackets";
        assert!(bad.what.ends_with(wanted), "{}", bad.what);
    }
}
