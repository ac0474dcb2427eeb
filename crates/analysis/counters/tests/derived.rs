//! Every derived counter of four GPUs, compared with what Python computes from the same expressions
//! (`derived.py`, which defines the values).

use midair_counters::value::Values;
use midair_counters::{Accumulate, Architecture, Definition, Expression, Position};
use std::collections::BTreeSet;

fn letters(name: &str) -> u64 {
    name.bytes().map(u64::from).sum()
}

fn event(architecture: &Architecture, block: &str, name: &str, how: Accumulate) -> Values {
    let extents = architecture.extents(block, architecture.shape);
    let count: u32 = extents.iter().map(|(_, extent)| extent).product();
    let factor = if how == Accumulate::HighRes { 7 } else { 1 };
    let mut values: Values = (0..count)
        .map(|index| {
            // The last dimension changes fastest.
            let mut rest = index;
            let mut position = Position::default();
            for (dimension, extent) in extents.iter().rev() {
                position = position.with(*dimension, rest % extent);
                rest /= extent;
            }
            let value = 1 + (letters(name) + 31 * u64::from(index)) % 97;
            (position, (factor * value) as f64)
        })
        .collect();
    values.sort_by_key(|(position, _)| *position);
    values
}

fn look(architecture: &'static Architecture, name: &str, how: Accumulate) -> Option<Values> {
    let Some(counter) = architecture.counter(name) else {
        let property = (letters(name) % 13 + 1) as f64;
        return Some(vec![(Position::default(), property)]);
    };
    match counter.definition {
        Definition::Basic { block, .. } => Some(event(architecture, block, counter.name, how)),
        Definition::Derived { expression } => {
            let expression = Expression::parse(expression).ok()?;
            expression
                .evaluate(&|name, how| look(architecture, name, how))
                .ok()
        }
    }
}

#[test]
fn every_derived_counter_is_what_another_program_computes() {
    let mut seen = BTreeSet::new();
    for line in include_str!("derived.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [gpu, name, places, total] = words[..] else {
            panic!("{line}")
        };
        let architecture = Architecture::find(gpu).unwrap();
        let values = look(architecture, name, Accumulate::None).expect(line);
        assert_eq!(values.len(), places.parse::<usize>().unwrap(), "{line}");
        let (sum, expected): (f64, f64) =
            (values.iter().map(|(_, v)| v).sum(), total.parse().unwrap());
        let off = (sum - expected).abs();
        assert!(off <= 1e-9 * expected.abs().max(1.0), "{line}: {sum}");
        // The list of available counters has the right number of values.
        let all = architecture.available(architecture.shape);
        let available = all.iter().find(|a| a.name == name).unwrap();
        let told: u32 = available
            .dimensions
            .iter()
            .map(|(_, extent)| extent)
            .product();
        assert_eq!(told as usize, values.len(), "{line}");
        seen.insert((gpu, name));
    }
    for gpu in ["gfx90a", "gfx942", "gfx950", "gfx1100"] {
        for counter in Architecture::find(gpu).unwrap().counters {
            if let Definition::Derived { .. } = counter.definition {
                assert!(
                    seen.contains(&(gpu, counter.name)),
                    "{gpu} {}",
                    counter.name
                );
            }
        }
    }
}
