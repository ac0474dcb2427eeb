//! The parser of /proc/cpuinfo.

/// One logical processor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpu {
    /// The APIC id, which `cpu_core_id_base` of a topology node refers to.
    pub apicid: Option<u32>,
    /// The field `cpu family`.
    pub family: u32,
    /// The field `model name`.
    pub model_name: String,
}

/// Parses the text. Unknown fields are skipped, and blocks without any of the known fields are
/// dropped.
pub(crate) fn parse(text: &str) -> Vec<Cpu> {
    text.split("\n\n")
        .filter_map(|block| {
            let mut cpu = Cpu::default();
            let mut known = false;
            for (key, value) in block.lines().filter_map(|line| line.split_once(':')) {
                // Only the first colon separates, because model names contain colons, too.
                let value = value.trim();
                match key.trim() {
                    "apicid" => cpu.apicid = value.parse().ok(),
                    "cpu family" => cpu.family = value.parse().unwrap_or(0),
                    "model name" => cpu.model_name = value.to_owned(),
                    _ => continue,
                }
                known = true;
            }
            known.then_some(cpu)
        })
        .collect()
}

/// Returns the first processor of a node. AMD leaves the names empty when no APIC id matches (in a
/// container or a virtual machine that hides processors). In that case we take the first processor
/// of the machine, since the sockets of one machine do not differ.
pub(crate) fn of_node(cpus: &[Cpu], cpu_core_id_base: u32) -> Option<&Cpu> {
    cpus.iter()
        .find(|cpu| cpu.apicid == Some(cpu_core_id_base))
        .or_else(|| cpus.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: AMD EPYC : 100-000000248\napicid\t\t: 0\n\n\
        processor\t: 1\ncpu family\t: 26\nmodel name\t: other\ninitial apicid\t: 9\napicid\t\t: 8\npower management:\n\n";

    #[test]
    fn blocks_become_processors_and_names_keep_their_colons() {
        let cpus = parse(TWO);
        assert_eq!(cpus.len(), 2);
        assert_eq!(
            cpus[0],
            Cpu {
                apicid: Some(0),
                family: 25,
                model_name: "AMD EPYC : 100-000000248".into()
            }
        );
        assert_eq!(of_node(&cpus, 8).unwrap().family, 26);
        assert_eq!(of_node(&cpus, 77).unwrap().family, 25);
        assert!(parse("").is_empty() && of_node(&[], 0).is_none());
    }
}
