//! Which agents the process's environment hides from its runtimes.

use crate::agent::{Agent, AgentType, Visibility};

/// Whether one variable makes an agent visible, and at which index.
enum Listed {
    /// The variable is not set.
    Unset,
    /// The variable is set and does not name the agent.
    Hidden,
    /// The variable names the agent as its n-th entry.
    At(i32),
}

/// Sets [`Agent::runtime_visibility`] from ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES in the
/// process's environment. If the latter is not set, CUDA_VISIBLE_DEVICES takes its place, and then
/// GPU_DEVICE_ORDINAL. HIP numbers only the agents that ROCr makes visible. Entries are GPU
/// indices, or `GPU-` followed by the unique id in hexadecimal. CPUs are always visible.
pub fn apply(agents: &mut [Agent], env: impl Fn(&str) -> Option<String>) {
    for agent in agents {
        agent.runtime_visibility = match agent.agent_type {
            AgentType::Cpu => Visibility::FULL,
            AgentType::None => Visibility::default(),
            AgentType::Gpu => gpu(agent, &env),
        };
    }
}

fn gpu(agent: &Agent, env: &impl Fn(&str) -> Option<String>) -> Visibility {
    let rocr = listed(
        env("ROCR_VISIBLE_DEVICES"),
        agent.logical_node_type_id,
        agent,
    );
    let (hsa, index) = match rocr {
        Listed::Unset => (true, agent.logical_node_type_id),
        Listed::Hidden => (false, agent.logical_node_type_id),
        Listed::At(index) => (true, index),
    };
    let hip = [
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    ]
    .into_iter()
    .find_map(|name| match listed(env(name), index, agent) {
        Listed::Unset => None,
        Listed::Hidden => Some(false),
        Listed::At(_) => Some(true),
    })
    .unwrap_or(true);
    let hip = hip && hsa;
    Visibility {
        hsa,
        hip,
        rccl: hip,
        rocdecode: hip,
    }
}

fn listed(value: Option<String>, index: i32, agent: &Agent) -> Listed {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Listed::Unset;
    };
    let unique = u64::from_le_bytes(agent.uuid.first_chunk().copied().unwrap_or_default());
    for (at, token) in value
        .split([',', ' '])
        .filter(|token| !token.is_empty())
        .enumerate()
    {
        let same = match token.strip_prefix("GPU-") {
            Some(id) => u64::from_str_radix(id, 16) == Ok(unique),
            None => token.parse() == Ok(index),
        };
        if same {
            return Listed::At(i32::try_from(at).unwrap_or(i32::MAX));
        }
    }
    Listed::Hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus() -> Vec<Agent> {
        (0..3)
            .map(|n| {
                let mut uuid = [0; 16];
                uuid[0] = 0xa0 + n as u8;
                Agent {
                    agent_type: AgentType::Gpu,
                    logical_node_type_id: n,
                    uuid,
                    ..Agent::default()
                }
            })
            .collect()
    }

    fn seen(pairs: &[(&str, &str)]) -> Vec<(bool, bool)> {
        let mut agents = gpus();
        apply(&mut agents, |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        });
        agents
            .iter()
            .map(|a| (a.runtime_visibility.hsa, a.runtime_visibility.hip))
            .collect()
    }

    #[test]
    fn each_variable_hides_its_own_layer() {
        assert_eq!(seen(&[]), [(true, true); 3]);
        assert_eq!(
            seen(&[("HIP_VISIBLE_DEVICES", "1")]),
            [(true, false), (true, true), (true, false)]
        );
        assert_eq!(
            seen(&[("ROCR_VISIBLE_DEVICES", "2,1")]),
            [(false, false), (true, true), (true, true)]
        );
        // HIP's index 0 is ROCr's first entry.
        let both = [
            ("ROCR_VISIBLE_DEVICES", "2,1"),
            ("HIP_VISIBLE_DEVICES", "0"),
        ];
        assert_eq!(seen(&both), [(false, false), (true, false), (true, true)]);
        assert_eq!(
            seen(&[("CUDA_VISIBLE_DEVICES", "GPU-a1")]),
            [(true, false), (true, true), (true, false)]
        );
        assert_eq!(
            seen(&[("GPU_DEVICE_ORDINAL", "nonsense")]),
            [(true, false); 3]
        );
    }
}
