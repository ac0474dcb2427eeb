//! Checks about thread traces: the GPUs, and AMD's decoder.

use midair_agents::{Agent, AgentType};
use midair_settings::{Settings, TRACE_LIBRARY_PATH};

/// Returns a line for each GPU, and one for the decoder: its name, and what is well or missing.
pub(super) fn checks(agents: &[Agent]) -> Vec<(String, Result<String, String>)> {
    let gpus = agents.iter().filter(|a| a.agent_type == AgentType::Gpu);
    let of_gpu = |(number, gpu): (usize, &Agent)| {
        let what = match midair_aqlprofile::is_traced(&gpu.name) {
            true => Ok(format!("{}: --att traces it", gpu.name)),
            false => Err(format!(
                "midair cannot trace threads of {}, only of gfx9",
                gpu.name
            )),
        };
        (format!("thread trace: GPU {number}"), what)
    };
    let mut all: Vec<_> = gpus.enumerate().map(of_gpu).collect();
    if !all.is_empty() {
        let path = std::env::var(TRACE_LIBRARY_PATH).ok();
        let settings: Settings = path
            .map(|path| (TRACE_LIBRARY_PATH, path))
            .into_iter()
            .collect();
        let decoder = midair_aqlprofile::decoder(&settings, |name| std::env::var_os(name));
        let what = decoder.map(|path| path.display().to_string());
        let none = "AMD's rocprof-trace-decoder is not installed: .att files stay as they are";
        all.push((
            "thread trace: decoder".to_owned(),
            what.ok_or_else(|| none.to_owned()),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_that_cannot_be_traced_are_named() {
        let gpu = |name: &str| Agent {
            name: name.to_owned(),
            agent_type: AgentType::Gpu,
            ..Agent::default()
        };
        assert_eq!(checks(&[]), []);
        let all = checks(&[gpu("gfx942"), gpu("gfx1100")]);
        assert_eq!(all.len(), 3);
        assert!(all[0].1.is_ok());
        let refused = all[1].1.as_ref().unwrap_err();
        assert!(refused.contains("gfx1100"), "{refused}");
    }
}
