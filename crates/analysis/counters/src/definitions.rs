//! Counters that a user adds: in the file of `rocprofv3 --extra-counters`, or in the text that is
//! passed to `rocprofiler_load_counter_definition`.
//!
//! ```yaml
//! rocprofiler-sdk:
//!   counters-schema-version: 1
//!   counters:
//!   - name: BusyShare
//!     description: how much of the time something ran
//!     definitions:
//!     - architectures: [gfx942, gfx950]
//!       expression: 100*reduce(GRBM_GUI_ACTIVE,max)/reduce(GRBM_COUNT,max)
//! ```
//!
//! In place of `expression` there may be an event of the hardware: `block` and `event`. The form of
//! ROCm up to 6.4 is read as well: the name is a key, and the names in `architectures` are
//! separated by slashes. A definition replaces a counter that has the same name. Source:
//! `docs/sources.md#counters`.

pub mod yaml;

use crate::architecture::{Architecture, Counter, Definition};
use crate::expression::Expression;
use crate::plan::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use yaml::Node;

/// The largest file in bytes.
const MOST_BYTES: usize = 4 << 20;
/// The most counters in a file: AMD's ids have 16 bits for them.
const MOST_COUNTERS: usize = 1 << 16;
/// How many different architectures with added counters a process keeps.
const MOST_KEPT: usize = 64;

/// Counters that were read from a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    counters: Vec<Added>,
}

/// An added counter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Added {
    name: String,
    description: String,
    architectures: Vec<String>,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Basic { block: String, event: u32 },
    Derived { expression: String },
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It is too long.
    Size,
    /// It is not YAML, as far as this reader knows it.
    Yaml {
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// It is YAML, but does not contain definitions.
    Shape(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Size => f.write_str("more than 4 MiB or 65,536 counters"),
            Unreadable::Yaml { line, what } => write!(f, "line {line}: {what}"),
            Unreadable::Shape(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Unreadable {}

fn shape<T>(what: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable::Shape(what.into()))
}

impl Definitions {
    /// Reads a text. Whether the counters make sense is checked when they are added to an
    /// architecture.
    ///
    /// # Errors
    /// When the text is too long, is not YAML, or contains no definitions.
    pub fn read(text: &str) -> Result<Definitions, Unreadable> {
        if text.len() > MOST_BYTES {
            return Err(Unreadable::Size);
        }
        let root = yaml::parse(text)?;
        let mut counters = Vec::new();
        if let Some(sdk) = root.get("rocprofiler-sdk") {
            let Some(Node::List(list)) = sdk.get("counters") else {
                return shape("rocprofiler-sdk has no list 'counters'");
            };
            for node in list {
                let Some(name) = node.text("name") else {
                    return shape("a counter has no name");
                };
                let description = node.text("description").unwrap_or_default();
                let Some(Node::List(definitions)) = node.get("definitions") else {
                    return shape(format!("{name} has no list 'definitions'"));
                };
                for definition in definitions {
                    let architectures = match definition.get("architectures") {
                        Some(Node::List(list)) => list.iter().filter_map(Node::scalar).collect(),
                        Some(Node::Scalar(one)) => vec![one.as_str()],
                        _ => return shape(format!("{name} has no architectures")),
                    };
                    counters.push(added(name, description, &architectures, definition)?);
                }
            }
        } else if let Node::Map(entries) = &root {
            for (name, node) in entries {
                let Some(Node::Map(architectures)) = node.get("architectures") else {
                    return shape(format!("{name} has no architectures"));
                };
                let description = node.text("description").unwrap_or_default();
                for (names, definition) in architectures {
                    let architectures: Vec<&str> = names.split('/').collect();
                    counters.push(added(name, description, &architectures, definition)?);
                }
            }
        } else {
            return shape("no 'rocprofiler-sdk' with 'counters' found");
        }
        if counters.len() > MOST_COUNTERS {
            return Err(Unreadable::Size);
        }
        Ok(Definitions { counters })
    }

    /// Adds a derived counter to an architecture's counters. [`Architecture::with`] checks whether
    /// it makes sense.
    ///
    /// # Errors
    /// When the name is not a name for a counter.
    pub fn add(
        &mut self,
        architecture: &str,
        name: &str,
        description: &str,
        expression: &str,
    ) -> Result<(), Unreadable> {
        if !is_name(name) {
            return shape(format!("'{name}' is not a valid counter name"));
        }
        self.counters.push(Added {
            name: name.to_owned(),
            description: description.to_owned(),
            architectures: vec![architecture.to_owned()],
            what: What::Derived {
                expression: expression.to_owned(),
            },
        });
        Ok(())
    }

    /// Whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }
}

fn is_name(name: &str) -> bool {
    let may_be = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(may_be) && !name.starts_with(|c: char| c.is_numeric())
}

fn added(
    name: &str,
    description: &str,
    architectures: &[&str],
    node: &Node,
) -> Result<Added, Unreadable> {
    if !is_name(name) {
        return shape(format!("'{name}' is not a valid counter name"));
    }
    // Older files have a description in each definition of a counter.
    let description = node.text("description").unwrap_or(description);
    let what = match (
        node.text("expression"),
        node.text("block"),
        node.text("event"),
    ) {
        (Some(expression), _, _) => What::Derived {
            expression: expression.to_owned(),
        },
        (None, Some(block), Some(event)) => {
            let number = match event.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => event.parse(),
            };
            let Ok(event) = number else {
                return shape(format!("{name}: '{event}' is not an event number"));
            };
            What::Basic {
                block: block.to_owned(),
                event,
            }
        }
        _ => {
            return shape(format!(
                "{name} has neither an expression nor a block with an event"
            ));
        }
    };
    Ok(Added {
        name: name.to_owned(),
        description: description.to_owned(),
        architectures: architectures.iter().map(|a| a.trim().to_owned()).collect(),
        what,
    })
}

/// An architecture that was made, and from what.
struct Kept {
    /// The name of the base, and whether it had no counters.
    base: (&'static str, bool),
    added: Definitions,
    made: &'static Architecture,
}

/// The architectures that were made so far.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

impl Architecture {
    /// Returns this architecture with the definitions that are for it, after checking them.
    ///
    /// It lives as long as the process. The same definitions give the same architecture again, and
    /// a process keeps at most 64 of them, so that nothing grows with the number of sessions.
    ///
    /// # Errors
    /// When an expression cannot be read, names an unknown counter or needs itself; when the GPU
    /// does not have a block; or when the process has too many different definitions.
    pub fn with(&'static self, added: &Definitions) -> Result<&'static Architecture, Error> {
        let here = |added: &&Added| added.architectures.iter().any(|a| a == self.name);
        let own = Definitions {
            counters: added.counters.iter().filter(here).cloned().collect(),
        };
        if own.is_empty() {
            return Ok(self);
        }
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        // An architecture with additions is not the base of another addition: the base is always
        // AMD's.
        let base = (self.name, self.counters.is_empty());
        let known = kept.iter().find(|k| k.base == base && k.added == own);
        if let Some(known) = known {
            return Ok(known.made);
        }
        if kept.len() >= MOST_KEPT {
            return Err(Error::Full);
        }
        self.check(&own)?;
        let made = self.joined(&own);
        kept.push(Kept {
            base,
            added: own,
            made,
        });
        Ok(made)
    }

    /// Checks that the definitions can be added, before anything is kept for good.
    fn check(&self, own: &Definitions) -> Result<(), Error> {
        for one in &own.counters {
            match &one.what {
                What::Basic { block, .. } if self.limit(block).is_none() => {
                    return Err(Error::Block {
                        name: one.name.clone(),
                        block: block.clone(),
                        architecture: self.name,
                    });
                }
                What::Basic { .. } => {}
                What::Derived { .. } => self.check_needs(own, one, &mut Vec::new())?,
            }
        }
        Ok(())
    }

    fn check_needs<'a>(
        &self,
        own: &'a Definitions,
        one: &'a Added,
        within: &mut Vec<&'a str>,
    ) -> Result<(), Error> {
        let What::Derived { expression } = &one.what else {
            return Ok(());
        };
        if within.contains(&one.name.as_str()) {
            return Err(Error::Circle(one.name.clone()));
        }
        let parsed = Expression::parse(expression).map_err(|what| Error::Definition {
            name: one.name.clone(),
            what,
        })?;
        let mut needed = Vec::new();
        parsed.names(&mut |name, _| needed.push(name.to_owned()));
        within.push(&one.name);
        for name in needed {
            // Where several definitions have the same name, the last one wins.
            if let Some(other) = own.counters.iter().rev().find(|added| added.name == name) {
                self.check_needs(own, other, within)?;
            } else if !crate::plan::is_property(&name) && self.counter(&name).is_none() {
                return Err(Error::Unknown {
                    nearest: self.nearest(&name),
                    name,
                    architecture: self.name,
                });
            }
        }
        within.pop();
        Ok(())
    }

    /// Returns a copy with the definitions, which is never freed.
    fn joined(&'static self, own: &Definitions) -> &'static Architecture {
        let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let mut counters: Vec<Counter> = self.counters.to_vec();
        for one in &own.counters {
            let counter = Counter {
                name: keep(&one.name),
                description: keep(&one.description),
                definition: match &one.what {
                    What::Basic { block, event } => Definition::Basic {
                        block: self.block(block).map_or("", |block| block.name),
                        event: *event,
                    },
                    What::Derived { expression } => Definition::Derived {
                        expression: keep(expression),
                    },
                },
            };
            match counters.binary_search_by(|c| c.name.cmp(&one.name)) {
                Ok(at) => counters.splice(at..=at, [counter]).for_each(drop),
                Err(at) => counters.insert(at, counter),
            }
        }
        Box::leak(Box::new(Architecture {
            name: self.name,
            counters: Box::leak(counters.into_boxed_slice()),
            blocks: self.blocks,
            shape: self.shape,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "\
rocprofiler-sdk:
  counters-schema-version: 1
  counters:
    - name: TEST_YAML_LOAD
      description: cycles
      properties: []
      definitions:
        - architectures:
          - gfx950
          - gfx942
          expression: reduce(GRBM_GUI_ACTIVE,max)*CU_NUM
    - name: TEST_EVENT
      definitions:
      - {architectures: [gfx942], block: SQ, event: 0x7}
";

    fn gfx942() -> &'static Architecture {
        Architecture::find("gfx942").unwrap()
    }

    fn with(text: &str) -> Result<&'static Architecture, Error> {
        gfx942().with(&Definitions::read(text).unwrap())
    }

    #[test]
    fn added_counters_are_beside_the_others() {
        let more = with(NEW).unwrap();
        assert_eq!(more.counters.len(), gfx942().counters.len() + 2);
        assert!(more.counters.is_sorted_by_key(|c| c.name));
        let wanted = more.wanted("TEST_YAML_LOAD").unwrap();
        let names: Vec<&str> = wanted.events.iter().map(|e| e.name).collect();
        assert_eq!(names, ["GRBM_GUI_ACTIVE"]);
        assert_eq!(
            more.counter("TEST_YAML_LOAD").unwrap().description,
            "cycles"
        );
        let event = more.wanted("TEST_EVENT").unwrap().events;
        assert_eq!((event[0].block, event[0].event), ("SQ", 7));
        assert!(more.wanted("SQ_WAVES").is_ok());
        // Other architectures do not have them, and the table itself has not changed.
        assert!(gfx942().wanted("TEST_EVENT").is_err());
        let definitions = Definitions::read(NEW).unwrap();
        let gfx950 = Architecture::find("gfx950").unwrap();
        let other = gfx950.with(&definitions).unwrap();
        assert!(other.counter("TEST_YAML_LOAD").is_some() && other.counter("TEST_EVENT").is_none());
        let gfx908 = Architecture::find("gfx908").unwrap();
        assert!(std::ptr::eq(gfx908.with(&definitions).unwrap(), gfx908));
    }

    #[test]
    fn the_same_definitions_are_kept_once() {
        let text = NEW.replace("TEST_", "SAME_");
        let (one, other) = (with(&text).unwrap(), with(&text).unwrap());
        assert!(std::ptr::eq(one, other));
        assert!(with("rocprofiler-sdk:\n  counters: []\n").is_ok());
        assert!(
            Definitions::read("rocprofiler-sdk:\n  counters: []\n")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn the_older_form_is_read_as_well() {
        let more = with(
            "OLD_ONE:\n  architectures:\n    gfx942/gfx10/gfx90a:\n      expression: reduce(GRBM_GUI_ACTIVE,max)*CU_NUM\n  \
             description: 'Unit: cycles'\nOLD_TWO:\n  architectures:\n    gfx942:\n      block: TCC\n      event: 3\n",
        )
        .unwrap();
        assert_eq!(more.counter("OLD_ONE").unwrap().description, "Unit: cycles");
        assert_eq!(more.wanted("OLD_TWO").unwrap().events[0].block, "TCC");
    }

    #[test]
    fn one_may_be_added_by_name_and_all_may_be_replaced() {
        let mut one = Definitions::default();
        one.add("gfx942", "MY_WAVES", "mine", "2*reduce(SQ_WAVES,sum)")
            .unwrap();
        let more = gfx942().with(&one).unwrap();
        assert_eq!(more.counter("MY_WAVES").unwrap().description, "mine");
        assert!(one.add("gfx942", "MY-WAVES", "", "1").is_err());
        // Without the counters that it needs, it is refused.
        let bare = gfx942().bare().unwrap();
        assert!(matches!(bare.with(&one), Err(Error::Unknown { .. })));
        let text = NEW.replace("TEST_", "ONLY_");
        let event = text.find("    - name: ONLY_EVENT").unwrap();
        let text = format!("rocprofiler-sdk:\n  counters:\n{}", &text[event..]);
        let only = bare.with(&Definitions::read(&text).unwrap()).unwrap();
        assert_eq!(only.counters.len(), 1);
    }

    #[test]
    fn a_counter_that_is_there_is_replaced() {
        let more = with(
            "rocprofiler-sdk:\n  counters:\n  - name: CU_NUM\n    definitions:\n    - architectures: [gfx942]\n      expression: \"7\"\n",
        )
        .unwrap();
        assert_eq!(more.counters.len(), gfx942().counters.len());
        let definition = more.counter("CU_NUM").unwrap().definition;
        assert_eq!(definition, Definition::Derived { expression: "7" });
    }

    fn one(definition: &str) -> String {
        format!(
            "rocprofiler-sdk:\n  counters:\n  - name: A\n    definitions:\n    - architectures: [gfx942]\n      {definition}\n"
        )
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let refused = |definition: &str| with(&one(definition)).unwrap_err().to_string();
        assert!(refused("expression: reduce(SQ_WAVE,sum)").contains("near it are SQ_WAVES"));
        assert_eq!(
            refused("expression: 1+A"),
            "the definition of A is recursive"
        );
        assert!(refused("expression: reduce(SQ_WAVES").contains("expected at character"));
        let block = "block: NONE\n      event: 3";
        assert_eq!(refused(block), "A needs block NONE, which gfx942 lacks");
        let two = one("expression: B+1")
            + "  - name: B\n    definitions:\n    - architectures: [gfx942]\n      expression: A\n";
        assert!(matches!(with(&two), Err(Error::Circle(_))));
    }

    #[test]
    fn what_is_no_definition_is_refused() {
        let refused = |text: &str| Definitions::read(text).unwrap_err().to_string();
        assert_eq!(
            refused(&one("event: 3")),
            "A has neither an expression nor a block with an event"
        );
        assert_eq!(
            refused(&one("block: SQ\n      event: x")),
            "A: 'x' is not an event number"
        );
        assert!(
            refused(&one("x: 1").replace("name: A", "name: A-B"))
                .contains("not a valid counter name")
        );
        assert!(
            refused(&one("x: 1").replace("name: A", "name: 1A"))
                .contains("not a valid counter name")
        );
        assert!(refused(&one("x: 1").replace("name: A", "other: A")).contains("has no name"));
        assert!(refused("rocprofiler-sdk:\n  other: 1\n").contains("no list 'counters'"));
        assert!(refused("rocprofiler-sdk:\n  counters:\n  - name: A\n").contains("'definitions'"));
        assert!(refused("A: 1\n").contains("A has no architectures"));
        assert!(refused("- 1\n").contains("no 'rocprofiler-sdk'"));
        assert_eq!(
            refused("a: b\n c: d\n"),
            "line 2: a key inside a continued text"
        );
        assert_eq!(
            Definitions::read(&" ".repeat(MOST_BYTES + 1)),
            Err(Unreadable::Size)
        );
    }

    #[test]
    fn a_process_keeps_a_bounded_number() {
        // Use another architecture's name, so that other tests find room.
        let gfx908 = Architecture::find("gfx908").unwrap();
        let add = |n: usize| {
            let text = one(&format!("expression: \"{n}\"")).replace("gfx942", "gfx908");
            gfx908.with(&Definitions::read(&text).unwrap())
        };
        // Other tests of this process use the same table at the same time.
        let refused = (0..2 * MOST_KEPT)
            .map(add)
            .any(|made| matches!(made, Err(Error::Full)));
        assert!(refused);
        KEPT.lock().unwrap().retain(|kept| kept.base.0 != "gfx908");
    }
}
