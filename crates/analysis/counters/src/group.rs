//! Which counters can be counted at once: counter groups that fit into the counters of each block.

use crate::architecture::Architecture;
use crate::plan::{Error, Event, Wanted};
use std::collections::{BTreeMap, BTreeSet};

/// The counters of one pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// The counters that were asked for.
    pub counters: Vec<Wanted>,
    /// What is counted: the events that these need, and reference counters where there was room.
    /// Sorted, without duplicates.
    pub events: Vec<Event>,
}

/// Returns how many counters of each block the events occupy.
fn use_of<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeMap<&'static str, u32> {
    let mut used = BTreeMap::new();
    for event in events {
        *used.entry(event.block).or_insert(0) += event.slots();
    }
    used
}

/// Checks that events can be counted at once.
///
/// # Errors
/// When a block has too few counters: the first such block.
pub fn fits<'a>(
    architecture: &'static Architecture,
    events: impl IntoIterator<Item = &'a Event>,
) -> Result<(), Error> {
    for (block, needed) in use_of(events) {
        let there = architecture.limit(block).unwrap_or(0);
        if needed > there {
            return Err(Error::TooMany {
                block,
                needed,
                there,
            });
        }
    }
    Ok(())
}

/// Returns one group with all of these counters, for counters that the user named as one group.
///
/// # Errors
/// When a counter is unknown, or a block has too few counters.
pub fn one(architecture: &'static Architecture, names: &[&str]) -> Result<Group, Error> {
    let mut group = Group::default();
    let mut events = BTreeSet::new();
    for name in names {
        let wanted = architecture.wanted(name)?;
        if group.counters.iter().any(|c| c.name == wanted.name) {
            continue;
        }
        events.extend(wanted.events.iter().cloned());
        group.counters.push(wanted);
    }
    fits(architecture, &events)?;
    group.events = events.into_iter().collect();
    Ok(group)
}

/// Returns as few groups as first fit finds: each counter goes into the first group that has room
/// for it. Each group also gets the counters of `references` that it still has room for; windows of
/// different groups are compared by them.
///
/// # Errors
/// When a counter is unknown, or does not fit into a group of its own.
pub fn first_fit(
    architecture: &'static Architecture,
    names: &[&str],
    references: &[&str],
) -> Result<Vec<Group>, Error> {
    let mut groups: Vec<(Vec<Wanted>, BTreeSet<Event>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names {
        let wanted = architecture.wanted(name)?;
        if !seen.insert(wanted.name) {
            continue;
        }
        fits(architecture, &wanted.events)?;
        let joined = |events: &BTreeSet<Event>| -> BTreeSet<Event> {
            events.iter().chain(&wanted.events).cloned().collect()
        };
        let room = groups
            .iter()
            .position(|(_, events)| fits(architecture, &joined(events)).is_ok());
        let at = room.unwrap_or_else(|| {
            groups.push(Default::default());
            groups.len() - 1
        });
        let (counters, events) = &mut groups[at];
        *events = joined(events);
        counters.push(wanted);
    }
    let group = |(counters, events): (Vec<Wanted>, BTreeSet<Event>)| Group {
        counters,
        events: events.into_iter().collect(),
    };
    let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
    refer(architecture, &mut groups, references)?;
    Ok(groups)
}

/// The blocks of which each compute unit has one. Reading a counter of theirs takes a read for each
/// unit, so that a window takes many times as long as one of other blocks.
const OF_EACH_UNIT: [&str; 3] = ["TA", "TCP", "TD"];

/// Returns groups of counters that do not fit into one: as few as first fit finds for counters of
/// blocks that each compute unit has, and for the others. Costly windows hold no cheap ones back
/// then.
fn split(architecture: &'static Architecture, names: &[&str]) -> Result<Vec<Group>, Error> {
    let (mut costly, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let wanted = architecture.wanted(name)?;
        let mut events = wanted.events.iter();
        match events.any(|event| OF_EACH_UNIT.contains(&event.block)) {
            true => costly.push(*name),
            false => others.push(*name),
        }
    }
    let mut groups = first_fit(architecture, &others, &[])?;
    groups.extend(first_fit(architecture, &costly, &[])?);
    Ok(groups)
}

/// Adds each reference counter to the groups that have room for it.
fn refer(
    architecture: &'static Architecture,
    groups: &mut [Group],
    references: &[&str],
) -> Result<(), Error> {
    for reference in references {
        let reference = architecture.wanted(reference)?;
        for group in &mut *groups {
            let events = group.events.iter().chain(&reference.events);
            let joined: BTreeSet<Event> = events.cloned().collect();
            if fits(architecture, &joined).is_ok() {
                group.events = joined.into_iter().collect();
            }
        }
    }
    Ok(())
}

/// Returns groups to multiplex. A given group that fits into a pass stays as it is; one that
/// does not is split, costly counters apart from others. Each group gets `clock` if it has room for
/// it: it shows whether another profiler has restarted the counters. Where there are several
/// groups, each also gets the counters of `references` that it has room for. A counter of these
/// that the architecture does not have is left out.
///
/// # Errors
/// When a counter is unknown, or does not fit into a group of its own.
pub fn in_turns(
    architecture: &'static Architecture,
    groups: &[Vec<&str>],
    clock: &str,
    references: &[&str],
) -> Result<Vec<Group>, Error> {
    let mut all = Vec::new();
    for names in groups {
        match one(architecture, names) {
            Ok(group) => all.push(group),
            Err(Error::TooMany { .. }) => all.extend(split(architecture, names)?),
            Err(error) => return Err(error),
        }
    }
    let several = if all.len() > 1 { references } else { &[] };
    let known = |name: &&str| architecture.counter(name).is_some();
    let added = [clock].into_iter().chain(several.iter().copied());
    let added: Vec<&str> = added.filter(known).collect();
    refer(architecture, &mut all, &added)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gfx942() -> &'static Architecture {
        Architecture::find("gfx942").unwrap()
    }

    #[test]
    fn a_group_that_does_not_fit_is_refused_by_its_block() {
        let group = one(
            gfx942(),
            &["SQ_WAVES", "GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_WAVES"],
        )
        .unwrap();
        let names: Vec<&str> = group.events.iter().map(|e| e.name).collect();
        assert_eq!(names, ["GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_WAVES"]);
        assert_eq!(group.counters.len(), 3);
        let error = one(
            gfx942(),
            &["GRBM_COUNT", "GRBM_GUI_ACTIVE", "GRBM_SPI_BUSY"],
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "these counters need 3 counters of GRBM, which has 2"
        );
    }

    #[test]
    fn an_accumulated_event_takes_two_counters() {
        // SQ has eight counters: six plain events fit next to one that is accumulated, and a seventh
        // does not.
        let plain = [
            "SQ_WAVES",
            "SQ_INSTS_VALU",
            "SQ_INSTS_SALU",
            "SQ_INSTS_SMEM",
            "SQ_INSTS_LDS",
        ];
        let mut names = vec!["MeanOccupancyPerCU", "SQ_BUSY_CYCLES"];
        names.extend(plain);
        assert!(one(gfx942(), &names).is_ok());
        names.push("SQ_INSTS_GDS");
        assert!(matches!(
            one(gfx942(), &names),
            Err(Error::TooMany {
                block: "SQ",
                needed: 9,
                there: 8
            })
        ));
    }

    #[test]
    fn all_counters_of_a_gpu_come_into_groups_that_fit() {
        for architecture in Architecture::all() {
            let names: Vec<&str> = architecture
                .counters
                .iter()
                .filter(|c| {
                    let wanted = architecture.wanted(c.name).unwrap();
                    fits(architecture, &wanted.events).is_ok()
                })
                .map(|c| c.name)
                .collect();
            let groups = first_fit(architecture, &names, &["GRBM_COUNT"]).unwrap();
            let counted: usize = groups.iter().map(|g| g.counters.len()).sum();
            assert_eq!(counted, names.len());
            for group in &groups {
                assert!(fits(architecture, &group.events).is_ok());
            }
            assert!(
                groups.len() <= 40,
                "{}: {}",
                architecture.name,
                groups.len()
            );
        }
    }

    #[test]
    fn groups_that_do_not_fit_are_split_and_others_stay() {
        let names =
            |group: &Group| -> Vec<&str> { group.counters.iter().map(|c| c.name).collect() };
        let clock = "GRBM_COUNT";
        let references = ["GRBM_GUI_ACTIVE", "NOT_THERE"];
        let events = |group: &Group| -> Vec<&str> { group.events.iter().map(|e| e.name).collect() };
        // One group that fits stays as it is, and gets the clock alone.
        let one = in_turns(gfx942(), &[vec!["SQ_WAVES", "TCC_HIT"]], clock, &references).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(names(&one[0]), ["SQ_WAVES", "TCC_HIT"]);
        assert_eq!(events(&one[0]), ["GRBM_COUNT", "SQ_WAVES", "TCC_HIT"]);
        let full = vec!["GRBM_CP_BUSY", "GRBM_SPI_BUSY"];
        let one = in_turns(gfx942(), std::slice::from_ref(&full), clock, &references).unwrap();
        assert_eq!(events(&one[0]), full, "there is no room");
        let mine = vec!["SQ_WAVES", "TCC_HIT"];
        let grbm = vec!["GRBM_CP_BUSY", "GRBM_SPI_BUSY", "GRBM_TA_BUSY"];
        let groups = in_turns(gfx942(), &[mine.clone(), grbm], clock, &references).unwrap();
        let counters: Vec<Vec<&str>> = groups.iter().map(names).collect();
        assert_eq!(
            counters,
            [
                mine,
                vec!["GRBM_CP_BUSY", "GRBM_SPI_BUSY"],
                vec!["GRBM_TA_BUSY"]
            ]
        );
        let has = |name: &str| -> Vec<bool> {
            let has = |group: &Group| group.events.iter().any(|e| e.name == name);
            groups.iter().map(has).collect()
        };
        assert_eq!(has("GRBM_COUNT"), [true, false, true]);
        assert_eq!(has("GRBM_GUI_ACTIVE"), [true, false, false]);
        assert!(matches!(
            in_turns(gfx942(), &[vec!["SQ_WAVE"]], clock, &references),
            Err(Error::Unknown { .. })
        ));
    }

    #[test]
    fn costly_counters_are_apart_where_a_group_is_split() {
        let names =
            |group: &Group| -> Vec<&str> { group.counters.iter().map(|c| c.name).collect() };
        let split = |all: &[&'static str]| -> Vec<Vec<&str>> {
            let groups = in_turns(gfx942(), &[all.to_vec()], "GRBM_COUNT", &[]).unwrap();
            groups.iter().map(names).collect()
        };
        // TCP counts four at once, TA two; a derived counter is as costly as its events.
        let tcp = [
            "TCP_GATE_EN1",
            "TCP_GATE_EN2",
            "TCP_TD_TCP_STALL_CYCLES",
            "TCP_PENDING_STALL_CYCLES",
            "TCP_TOTAL_CACHE_ACCESSES_sum",
        ];
        let all = [&["SQ_WAVES"], &tcp[..], &["TA_TA_BUSY", "TCC_HIT_sum"]].concat();
        assert_eq!(
            split(&all),
            [
                vec!["SQ_WAVES", "TCC_HIT_sum"],
                [&tcp[..4], &["TA_TA_BUSY"]].concat(),
                vec![tcp[4]],
            ]
        );
        // What fits into one pass stays together: the user asked for it.
        let fits = ["SQ_WAVES", "TCP_GATE_EN1", "TA_TA_BUSY"];
        assert_eq!(split(&fits), [fits]);
        // Costly ones alone, or others alone, are split as before.
        assert_eq!(split(&tcp), [tcp[..4].to_vec(), vec![tcp[4]]]);
        for architecture in Architecture::all() {
            let all: Vec<&str> = architecture
                .counters
                .iter()
                .filter(|c| one(architecture, &[c.name]).is_ok())
                .map(|c| c.name)
                .collect();
            let groups = in_turns(architecture, &[all], "GRBM_COUNT", &[]).unwrap();
            // An agent has room for 64.
            assert!(
                groups.len() <= 64,
                "{}: {}",
                architecture.name,
                groups.len()
            );
            for group in &groups {
                let costly = |event: &Event| OF_EACH_UNIT.contains(&event.block);
                let wanted = || group.counters.iter();
                let any = wanted().any(|w| w.events.iter().any(costly));
                let all = wanted().all(|w| w.events.iter().any(costly));
                assert_eq!(any, all, "{}: {:?}", architecture.name, names(group));
            }
        }
    }

    #[test]
    fn references_go_where_there_is_room() {
        let names = ["GRBM_GUI_ACTIVE", "GRBM_SPI_BUSY", "GRBM_CP_BUSY"];
        let groups = first_fit(gfx942(), &names, &["GRBM_COUNT", "SQ_WAVES"]).unwrap();
        let events: Vec<Vec<&str>> = groups
            .iter()
            .map(|g| g.events.iter().map(|e| e.name).collect())
            .collect();
        assert_eq!(
            events,
            [
                vec!["GRBM_GUI_ACTIVE", "GRBM_SPI_BUSY", "SQ_WAVES"],
                vec!["GRBM_COUNT", "GRBM_CP_BUSY", "SQ_WAVES"]
            ]
        );
    }
}
