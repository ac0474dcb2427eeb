//! Information about a counter, in AMD's layout. Tools keep the pointers, so all of it lives
//! forever and is created once.

use super::device::Device;
use super::ids::instance;
use super::places::{Cut, Infos, Places};
use super::table::{Metric, What};
use crate::interned::intern;
use midair_abi::counting::{DimensionInfo, DimensionInstanceInfo, RecordDimensionInfo};
use midair_counters::{Definition, Dimension, Position};
use std::ffi::{CStr, c_char};

/// The information that does not depend on an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Basics {
    pub name: &'static CStr,
    pub description: &'static CStr,
    pub block: &'static CStr,
    pub expression: &'static CStr,
    pub is_constant: bool,
    pub is_derived: bool,
}

impl Basics {
    pub fn of(metric: &Metric) -> Basics {
        let nothing = c"";
        let name = intern(metric.name.as_bytes());
        let What::Counted(counter) = metric.what else {
            let description = format!("Property {} of the agent", metric.name);
            return Basics {
                name,
                description: intern(description.as_bytes()),
                block: nothing,
                expression: nothing,
                is_constant: true,
                is_derived: false,
            };
        };
        let described = metric
            .architecture
            .described(counter, metric.architecture.shape);
        let (block, expression) = match counter.definition {
            Definition::Basic { block, .. } => (intern(block.as_bytes()), nothing),
            Definition::Derived { expression } => (nothing, intern(expression.as_bytes())),
        };
        Basics {
            name,
            description: intern(described.description.as_bytes()),
            block,
            expression,
            is_constant: false,
            is_derived: matches!(counter.definition, Definition::Derived { .. }),
        }
    }

    /// Returns the bits of AMD's structs.
    pub fn bits(&self) -> u8 {
        u8::from(self.is_constant) | u8::from(self.is_derived) << 1
    }
}

/// Returns the dimensions of a counter's values on a device. A counter with a single value has one
/// instance.
pub(crate) fn extents(metric: &Metric, device: &Device) -> Vec<(Dimension, u32)> {
    let extents = match metric.what {
        What::Constant => Vec::new(),
        What::Counted(counter) => {
            metric
                .architecture
                .described(counter, device.shape)
                .dimensions
        }
    };
    if extents.is_empty() {
        return vec![(Dimension::Instance, 1)];
    }
    extents
}

fn leak<T>(items: impl Iterator<Item = T>) -> &'static [T] {
    Vec::leak(items.collect())
}

fn pointers<T>(items: &'static [T]) -> &'static [*const T] {
    leak(items.iter().map(|item| &raw const *item))
}

fn name(dimension: Dimension) -> *const c_char {
    intern(dimension.name().as_bytes()).as_ptr()
}

/// Returns all places; the last dimension changes slowest.
fn positions(extents: &[(Dimension, u32)]) -> Vec<Position> {
    let mut all = vec![Position::default()];
    for (dimension, extent) in extents {
        all = (0..*extent)
            .flat_map(|number| all.iter().map(move |place| place.with(*dimension, number)))
            .collect();
    }
    all
}

fn cut(infos: &mut Infos, extents: &[(Dimension, u32)]) -> Cut {
    *infos.cuts.entry(extents.to_vec()).or_insert_with(|| {
        let numbers = |place: Position| {
            let numbers = extents.iter().map(|(dimension, _)| DimensionInfo {
                size: size_of::<DimensionInfo>() as u64,
                dimension_name: name(*dimension),
                index: place.get(*dimension) as usize,
            });
            pointers(leak(numbers))
        };
        let places = positions(extents);
        Cut(leak(
            places.into_iter().map(|place| (place, numbers(place))),
        ))
    })
}

/// Returns the places at which a counter has values on a device.
pub(crate) fn places(
    infos: &mut Infos,
    counter: u64,
    metric: &Metric,
    device: &Device,
) -> &'static Places {
    if let Some(known) = infos.places.get(&(counter, device.id)) {
        return known;
    }
    let extents = extents(metric, device);
    let cut = cut(infos, &extents);
    let dimensions = leak(
        extents
            .iter()
            .map(|(dimension, extent)| RecordDimensionInfo {
                name: name(*dimension),
                instance_size: *extent as usize,
                id: *dimension as u64,
            }),
    );
    let instances = leak(cut.0.iter().map(|(place, numbers)| DimensionInstanceInfo {
        size: size_of::<DimensionInstanceInfo>() as u64,
        instance_id: instance(counter, *place),
        counter_id: counter,
        dimensions_count: numbers.len() as u64,
        dimensions: numbers.as_ptr(),
    }));
    let made: &'static Places = Box::leak(Box::new(Places {
        dimensions,
        dimension_pointers: pointers(dimensions),
        instance_pointers: pointers(instances),
    }));
    infos.places.insert((counter, device.id), made);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_place_for_each_number_of_each_dimension() {
        let extents = [(Dimension::Xcc, 2), (Dimension::Instance, 3)];
        let all = positions(&extents);
        assert_eq!(all.len(), 6);
        let at = |n: usize| (all[n].get(Dimension::Xcc), all[n].get(Dimension::Instance));
        assert_eq!((at(0), at(1), at(5)), ((0, 0), (1, 0), (1, 2)));
        let mut infos = Infos::new();
        let first = cut(&mut infos, &extents).0;
        assert_eq!(cut(&mut infos, &extents).0.as_ptr(), first.as_ptr());
    }
}
