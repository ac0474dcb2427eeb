use super::*;
use std::collections::BTreeSet;

fn suffixes() -> Suffixes {
    let all = ["results.db", "agent_info.csv", "results.json", "notes.txt"];
    Suffixes {
        likely: vec!["results.db".to_owned()],
        all: all.map(str::to_owned).into(),
    }
}

/// Returns the number for a result, and how many names were looked up for it.
fn number(names: &BTreeSet<String>, prefix: &str) -> (u64, usize) {
    let mut lookups = 0;
    let number = free_number(Numbering::FromTwo, prefix, 1, &suffixes(), &mut |name| {
        lookups += 1;
        names.contains(name)
    });
    (number, lookups)
}

#[test]
fn the_time_does_not_depend_on_how_many_results_there_are() {
    let mut names = BTreeSet::new();
    let (first, few) = number(&names, "r");
    assert!(first == 1 && few < 20, "{first} {few}");
    for count in 1..=5000 {
        names.insert(format!(
            "{}results.db",
            stem(&Numbering::FromTwo.prefix("r", count))
        ));
        let (next, lookups) = number(&names, "r");
        assert_eq!(next, count + 1);
        assert!(lookups < 50, "{lookups} names of {count} results");
    }
    // Results of another format need more lookups, but not one for each.
    let others = names
        .iter()
        .map(|name| name.replace("results.db", "results.json"));
    let others: BTreeSet<String> = others.collect();
    let (next, lookups) = number(&others, "r");
    assert!(next == 5001 && lookups < 200, "{next} {lookups}");
}

#[test]
fn the_number_is_behind_one_that_is_taken() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (there, wanted) in [
        (&["host_421_results.db", "42"][..], 1),
        (&["42_agent_info.csv"], 2),
        (&["42_results.db", "42-2_results.json"], 3),
        (&["42_results.db", "42-2_results.db", "42-4_results.db"], 5),
    ] {
        assert_eq!(number(&names(there), "host/42").0, wanted, "{there:?}");
    }
    // Where another format has the next ones, those are passed by.
    let (number, _) = number(
        &names(&["r_results.db", "r-2_notes.txt", "r-3_results.json"]),
        "r",
    );
    assert_eq!(number, 4);
}

#[test]
fn a_prefix_without_a_name_gets_numbers_too() {
    for (prefix, number, wanted) in [
        ("r", 1, "r_"),
        ("r", 2, "r-2_"),
        ("a/b/r", 11, "r-11_"),
        ("", 1, ""),
        ("", 2, "2_"),
        ("sub/", 2, "2_"),
    ] {
        let given = Numbering::FromTwo.prefix(prefix, number);
        assert_eq!(stem(&given), wanted, "{prefix} {number}");
    }
    assert_eq!(Numbering::FromTwo.prefix("sub/", 2), "sub/2");
}

#[test]
fn a_further_attach_has_amds_number() {
    let prefix = |number| Numbering::FromOne.prefix("42", number);
    assert_eq!([1, 2, 3].map(prefix), ["42", "42_1", "42_2"]);
}

#[test]
fn a_name_is_claimed_once_and_is_free_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let claim = Claim::take(at, "r_").unwrap().unwrap();
    assert!(Claim::take(at, "r_").unwrap().is_none());
    assert!(Claim::take(at, "r-2_").unwrap().is_some());
    drop(claim);
    assert_eq!(fs::read_dir(at).unwrap().count(), 0);
    assert!(Claim::take(at, "r_").unwrap().is_some());
}

/// A session that was killed leaves its file behind, and no lock.
#[test]
fn a_claim_that_nobody_holds_is_no_obstacle_and_goes_when_it_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let make = |name: &str, age: u64| {
        let file = File::create(at.join(name)).unwrap();
        let time = std::time::SystemTime::now() - Duration::from_secs(age);
        file.set_modified(time).unwrap();
        file
    };
    drop(make("r_.name", 0));
    drop(make("s_.name", 3600));
    drop(make("t_", 3600));
    let held = make("u_.name", 3600);
    held.lock().unwrap();
    remove_abandoned(at);
    let left: BTreeSet<_> = fs::read_dir(at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["r_.name", "t_", "u_.name"].map(str::to_owned).into());
    assert!(Claim::take(at, "r_").unwrap().is_some());
}
