//! Which other processes use a GPU, as the kernel driver lists them.

use midair_agents::Agent;
use midair_counters::CounterPlan;
use midair_procinfo::Pid;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel's files are.
pub(crate) const SYS: &str = "/sys";

/// Adds the processes that use the GPUs of a plan now, besides the one that is attached to. Where
/// the driver does not list them, nothing is known and nothing is added.
pub(crate) fn add_to(plan: &mut CounterPlan, agents: &[Agent], sys: &Path, pid: Pid) {
    let counted = |agent: &&Agent| plan.agents.contains_key(&agent.node_id);
    for agent in agents.iter().filter(counted) {
        if let Ok(found) = others(sys, agent.gpu_id, pid) {
            plan.others.entry(agent.node_id).or_default().extend(found);
        }
    }
}

/// Returns the processes other than `pid` that have memory or queues on a GPU, according to the
/// driver. `sys` is where the kernel's files are: `/sys`.
pub(crate) fn others(sys: &Path, gpu_id: u64, pid: Pid) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for path in list(&sys.join("class/kfd/kfd/proc"))? {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|number: &u32| *number != pid.get()) else {
            continue;
        };
        let memory = text(&path.join(format!("vram_{gpu_id}")));
        let has_memory = memory.is_ok_and(|bytes| !matches!(bytes.trim(), "" | "0"));
        if has_memory || has_queues(&path.join("queues"), gpu_id) {
            found.insert(number);
        }
    }
    Ok(found)
}

fn has_queues(directory: &Path, gpu_id: u64) -> bool {
    let queues = list(directory).unwrap_or_default();
    let mut gpus = queues.iter().map(|queue| text(&queue.join("gpuid")));
    gpus.any(|gpu| gpu.is_ok_and(|gpu| gpu.trim() == gpu_id.to_string()))
}

/// Reads a file of this machine's kernel.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own files, at places that no target names"
)]
pub(crate) fn text(file: &Path) -> io::Result<String> {
    std::fs::read_to_string(file)
}

/// Returns the entries of a directory of this machine's kernel.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own files, at places that no target names"
)]
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_the_beginning_and_of_the_end_are_added_up() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join("class/kfd/kfd/proc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let agent = |node_id, gpu_id| Agent {
            node_id,
            gpu_id,
            ..Agent::default()
        };
        let agents = [agent(1, 4711), agent(2, 12)];
        let mut plan = CounterPlan::default();
        plan.agents.insert(1, Vec::new());
        let pid = Pid::new(77).unwrap();
        add_to(&mut plan, &agents, sys.path(), pid);
        assert!(plan.others.is_empty(), "there is no driver");
        write("77/vram_4711", "4096\n");
        write("82/vram_4711", "8192\n");
        add_to(&mut plan, &agents, sys.path(), pid);
        std::fs::remove_dir_all(sys.path().join("class/kfd/kfd/proc/82")).unwrap();
        write("83/queues/1/gpuid", "4711\n");
        // Nothing is counted on this GPU.
        write("84/vram_12", "4096\n");
        add_to(&mut plan, &agents, sys.path(), pid);
        assert_eq!(plan.others, [(1, [82, 83].into())].into());
    }
}
