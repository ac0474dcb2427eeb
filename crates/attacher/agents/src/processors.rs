//! The CPUs of a machine without the KFD driver, from files that every kernel provides.

use crate::agent::{Agent, Visibility};
use crate::cpuinfo::Cpu;
use crate::node::{NodeFiles, Properties, agent};
use crate::topology::{Files, HANDLE_BASE, text};
use std::path::Path;

/// Returns one agent for each NUMA node below `numa` that has processors.
pub(crate) fn agents(files: &dyn Files, numa: &Path, cpus: &[Cpu]) -> Vec<Agent> {
    let mut nodes: Vec<(u32, Vec<u32>)> = files
        .list(numa)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| {
            let number = name.strip_prefix("node")?.parse();
            let list = processors(&text(files, &numa.join(&name).join("cpulist")));
            Some((number.ok()?, list)).filter(|(_, list)| !list.is_empty())
        })
        .collect();
    nodes.sort();
    if nodes.is_empty() && !cpus.is_empty() {
        nodes.push((
            0,
            (0..u32::try_from(cpus.len()).unwrap_or(u32::MAX)).collect(),
        ));
    }
    let mut agents: Vec<Agent> = Vec::new();
    for (node, list) in nodes {
        let first = list.first().and_then(|first| cpus.get(*first as usize));
        let base = first.and_then(|cpu| cpu.apicid).unwrap_or(0);
        let properties = format!("cpu_cores_count {}\ncpu_core_id_base {base}\n", list.len());
        let files = NodeFiles {
            properties: Properties::parse(&properties),
            name: "",
            gpu_id: "",
            mem_banks: Vec::new(),
            caches: Vec::new(),
            io_links: Vec::new(),
            product: None,
        };
        let number = i32::try_from(agents.len()).unwrap_or(i32::MAX);
        agents.push(Agent {
            node_id: node,
            logical_node_id: number,
            logical_node_type_id: number,
            handle: HANDLE_BASE + agents.len() as u64,
            runtime_visibility: Visibility::FULL,
            ..agent(&files, cpus)
        });
    }
    agents
}

/// Parses numbers in the kernel's notation: `0-3,8`. Other text gives an empty list.
fn processors(text: &str) -> Vec<u32> {
    /// The limit is more than any kernel is built for (NR_CPUS_RANGE_END). There is one since the
    /// text is not trusted.
    const MOST: u32 = 1 << 16;
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse::<u32>().ok()?);
        Some(first..=last.min(MOST))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentType;
    use crate::topology::OwnFiles;

    fn cpu(apicid: u32) -> Cpu {
        Cpu {
            apicid: Some(apicid),
            family: 6,
            model_name: format!("Xeon {apicid}"),
        }
    }

    #[test]
    fn each_node_with_processors_is_an_agent() {
        let dir = tempfile::tempdir().unwrap();
        for (node, list) in [("node10", "4-5\n"), ("node0", "0-1,3\n"), ("node1", "\n")] {
            std::fs::create_dir(dir.path().join(node)).unwrap();
            std::fs::write(dir.path().join(node).join("cpulist"), list).unwrap();
        }
        std::fs::create_dir(dir.path().join("power")).unwrap();
        let cpus: Vec<Cpu> = (0..6).map(|number| cpu(number * 2)).collect();
        let found = agents(&OwnFiles, dir.path(), &cpus);
        let told: Vec<_> = found
            .iter()
            .map(|it| {
                (
                    it.agent_type,
                    it.node_id,
                    it.logical_node_id,
                    it.cpu_cores_count,
                    it.name.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (AgentType::Cpu, 0, 0, 3, "Xeon 0"),
                (AgentType::Cpu, 10, 1, 2, "Xeon 8"),
            ]
        );
        assert_ne!(found[0].handle, found[1].handle);
        // Without nodes, one agent has all processors.
        let none = agents(&OwnFiles, &dir.path().join("nowhere"), &cpus);
        assert_eq!((none.len(), none[0].cpu_cores_count), (1, 6));
        assert!(agents(&OwnFiles, &dir.path().join("nowhere"), &[]).is_empty());
    }

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(processors("0-2,7\n"), [0, 1, 2, 7]);
        assert!(processors("").is_empty() && processors("x-y").is_empty());
        assert!(processors("0-4294967295").len() < 70_000);
    }
}
