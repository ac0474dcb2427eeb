//! The counters that can be counted, as a list for people.

use crate::architecture::{Architecture, Counter, Definition, Shape};
use crate::descriptions::describe;
use crate::dimension::Dimension;
use crate::expression::Expression;
use std::fmt::{self, Write};

/// A counter that can be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Available {
    /// Its name.
    pub name: &'static str,
    /// A description; for an added counter, the one in its file.
    pub description: String,
    /// Where it comes from.
    pub definition: Definition,
    /// The dimensions in which it has a value for each number, and how many numbers there are;
    /// empty for a counter with a single value.
    pub dimensions: Vec<(Dimension, u32)>,
}

impl Architecture {
    /// Returns all counters of a GPU of this shape, by name.
    pub fn available(&'static self, shape: Shape) -> Vec<Available> {
        let of = |counter| self.described(counter, shape);
        self.counters.iter().map(of).collect()
    }

    /// Returns the description of one of its counters.
    pub fn described(&'static self, counter: &'static Counter, shape: Shape) -> Available {
        Available {
            name: counter.name,
            description: match counter.description {
                "" => describe(counter.name, counter.definition),
                description => description.to_owned(),
            },
            definition: counter.definition,
            dimensions: self.dimensions(counter.name, shape, 0),
        }
    }

    /// Returns the dimensions of a counter's values; none for a property, and none when definitions
    /// are nested too deeply.
    fn dimensions(&'static self, name: &str, shape: Shape, depth: u32) -> Vec<(Dimension, u32)> {
        let Some(counter) = self.counter(name).filter(|_| depth < 64) else {
            return Vec::new();
        };
        match counter.definition {
            Definition::Basic { block, .. } => self.extents(block, shape),
            Definition::Derived { expression } => match Expression::parse(expression) {
                Ok(expression) => self.dimensions_of(&expression, shape, depth + 1),
                Err(_) => Vec::new(),
            },
        }
    }

    fn dimensions_of(
        &'static self,
        expression: &Expression,
        shape: Shape,
        depth: u32,
    ) -> Vec<(Dimension, u32)> {
        match expression {
            Expression::Number(_) => Vec::new(),
            Expression::Name(name) | Expression::Accumulated(name, _) => {
                self.dimensions(name, shape, depth)
            }
            Expression::Both(left, _, right) => {
                let left = self.dimensions_of(left, shape, depth);
                if left.is_empty() {
                    return self.dimensions_of(right, shape, depth);
                }
                left
            }
            Expression::Reduce { over, .. } if over.is_empty() => Vec::new(),
            Expression::Reduce { of, over, .. } => {
                let mut all = self.dimensions_of(of, shape, depth);
                all.retain(|(dimension, _)| !over.contains(dimension));
                all
            }
            Expression::Select { of, at } => {
                let mut all = self.dimensions_of(of, shape, depth);
                all.retain(|(dimension, _)| !at.iter().any(|(chosen, _)| chosen == dimension));
                all
            }
        }
    }
}

impl Available {
    /// Returns "DIMENSION_XCC\[0:7\]" and so on, as AMD's tools write it. A counter with a single
    /// value has the instance 0.
    pub fn places(&self) -> String {
        let one = [(Dimension::Instance, 1)];
        let dimensions = match &self.dimensions[..] {
            [] => &one[..],
            dimensions => dimensions,
        };
        let mut text = String::new();
        for (n, (dimension, extent)) in dimensions.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            // Writing into a String does not fail.
            let _ = write!(text, "{space}{}[0:{}]", dimension.name(), extent - 1);
        }
        text
    }
}

/// Writes it as `rocprofv3-avail info --pmc` does (source: `docs/sources.md#counters`).
impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |key: &str, value: &str| writeln!(f, "{key:20}:\t{value}");
        line("Counter_Name", self.name)?;
        line("Description", &self.description)?;
        match self.definition {
            Definition::Basic { block, .. } => line("Block", block)?,
            Definition::Derived { expression } => line("Expression", expression)?,
        }
        line("Dimensions", &self.places())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::Definitions;

    fn of(architecture: &'static Architecture, name: &str) -> Available {
        let all = architecture.available(architecture.shape);
        let found = all.into_iter().find(|available| available.name == name);
        found.unwrap()
    }

    #[test]
    fn counters_are_listed_with_where_they_are_counted() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        assert_eq!(
            of(gfx942, "SQ_WAVES").to_string(),
            "Counter_Name        :\tSQ_WAVES\nDescription         :\tWaves that were launched\nBlock               :\tSQ\n\
             Dimensions          :\tDIMENSION_XCC[0:7] DIMENSION_INSTANCE[0:0] DIMENSION_SHADER_ENGINE[0:3]\n"
        );
        assert_eq!(
            of(gfx942, "GPU_UTIL").to_string(),
            "Counter_Name        :\tGPU_UTIL\nDescription         :\tPercent of the time in which the GPU had work\n\
             Expression          :\t100*reduce(GRBM_GUI_ACTIVE,max)/reduce(GRBM_COUNT,max)\n\
             Dimensions          :\tDIMENSION_INSTANCE[0:0]\n"
        );
        for architecture in Architecture::all() {
            let all = architecture.available(architecture.shape);
            assert_eq!(all.len(), architecture.counters.len());
        }
    }

    #[test]
    fn dimensions_of_what_is_computed() {
        let text = "\
rocprofiler-sdk:
  counters:
  - {name: D_HALF, definitions: [{architectures: [gfx90a], expression: 'reduce(SQ_WAVES,sum,[DIMENSION_INSTANCE])'}]}
  - {name: D_ONE, definitions: [{architectures: [gfx90a], expression: 'select(SQ_WAVES,[DIMENSION_SHADER_ENGINE=[0]])'}]}
  - {name: D_BOTH, description: made up, definitions: [{architectures: [gfx90a], expression: '2*D_HALF'}]}
";
        // Lists in brackets contain commas; texts with commas are quoted.
        let added = Definitions::read(text).unwrap();
        let gfx90a = Architecture::find("gfx90a").unwrap().with(&added).unwrap();
        let engines = vec![(Dimension::ShaderEngine, 8)];
        assert_eq!(of(gfx90a, "D_HALF").dimensions, engines);
        assert_eq!(of(gfx90a, "D_BOTH").dimensions, engines);
        assert_eq!(of(gfx90a, "D_BOTH").description, "made up");
        assert_eq!(of(gfx90a, "D_ONE").dimensions, [(Dimension::Instance, 1)]);
    }
}
