//! Names from AMD's headers, and from CUPTI's, through `midair-abi`.

use crate::api::{Kind, Names, Parameter};
use crate::ctype::{self, Class};
use crate::cuda;
use midair_abi::members::{sdk_name, sdk_type};
use midair_abi::names::{self, Name};
use midair_abi::tables::{self, Class as AbiClass, Table};
use std::borrow::Cow;

impl Names {
    /// Returns the names of everything that AMD's headers describe, and of what CUDA processes have
    /// in addition. Operations that AMD has no number for yet stand behind those that it has, so
    /// that numbers index the lists.
    pub fn amd() -> Names {
        let (of_buffers, newer) = names::BUFFER_KINDS.split_at(names::FIRST_BUFFER_KINDS);
        let (of_callbacks, _) = names::CALLBACK_KINDS.split_at(names::FIRST_CALLBACK_KINDS);
        let mut all = Names {
            buffer: of_buffers.iter().map(kind).collect(),
            newer: newer.iter().map(kind).collect(),
            callback: of_callbacks.iter().map(kind).collect(),
            cuda: cuda::kinds(),
            ..Names::default()
        };
        // Only the calls of these tables have arguments in json.
        for table in [
            &tables::HIP_RUNTIME,
            &tables::HIP_COMPILER,
            &tables::ROCDECODE,
        ] {
            add_parameters(&mut all, table);
        }
        all
    }
}

fn kind(kind: &names::Kind) -> Kind {
    let text = |name: &Name| Cow::Borrowed(name.as_str());
    Kind {
        name: text(&kind.name),
        operations: kind.operations.iter().chain(kind.added).map(text).collect(),
    }
}

/// Returns the kind of the records of a table's calls.
fn record_kind(table: &Table) -> u8 {
    midair_domain::of_buffer_kind(i32::from(table.kind)).map_or(0, |domain| domain.kind)
}

fn add_parameters(names: &mut Names, table: &Table) {
    for function in table.functions {
        let parameters = function
            .parameters
            .iter()
            .map(|p| parameter(function.name.as_str(), p))
            .collect();
        names
            .parameters
            .insert((record_kind(table), function.operation), parameters);
    }
}

fn parameter(function: &str, parameter: &tables::Parameter) -> Parameter {
    let ty = parameter.ty;
    let name = sdk_name(function, parameter.name);
    let c = sdk_type(function, parameter.name).unwrap_or(ty.c);
    let class = match ty.class {
        AbiClass::Int => Class::Int,
        AbiClass::Void | AbiClass::Bool | AbiClass::Uint => Class::Uint,
        AbiClass::Enum => Class::Enum,
        AbiClass::Float => Class::Float,
        AbiClass::Pointer | AbiClass::Function => Class::Pointer,
        AbiClass::Struct => Class::Struct,
    };
    Parameter {
        type_name: ctype::mangled(c),
        name: Cow::Borrowed(name),
        shape: ctype::shape(ty.c, class, u32::from(ty.size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_abi::tables::Function;

    fn function<'a>(table: &'a Table, name: &str) -> &'a Function {
        table
            .functions
            .iter()
            .find(|f| f.name.as_str() == name)
            .unwrap()
    }

    #[test]
    fn words_are_where_the_wrappers_put_them() {
        let names = Names::amd();
        let mut seen = 0;
        for table in [&tables::HIP_RUNTIME, &tables::HIP_COMPILER] {
            for function in table.functions {
                let ours = names.parameters(record_kind(table), function.operation);
                let mut word = 0;
                for (ours, theirs) in ours.iter().zip(function.parameters) {
                    assert_eq!(
                        word,
                        usize::from(theirs.word),
                        "{} {}",
                        function.name,
                        theirs.name
                    );
                    assert_eq!(
                        ours.shape.size(),
                        u32::from(theirs.ty.size),
                        "{} {}",
                        function.name,
                        theirs.name
                    );
                    word += ours.shape.words();
                }
                assert_eq!(word, usize::from(function.words), "{}", function.name);
                seen += ours.len();
            }
        }
        assert!(seen > 1000, "{seen}");
    }

    #[test]
    fn operations_have_their_names() {
        let names = Names::amd();
        for table in tables::ALL {
            for function in table.functions {
                assert_eq!(
                    names.operation(record_kind(table), function.operation),
                    function.name.as_str()
                );
            }
        }
        let unknown = names.operation(record_kind(&tables::HIP_RUNTIME), 60_000);
        assert_eq!(unknown, "HIP_RUNTIME_API_EXT_OPERATION_60000");
        assert_eq!(names.operation(250, 1), "KIND_250_OPERATION_1");
    }

    #[test]
    fn a_launch_is_described_as_amd_does() {
        let names = Names::amd();
        let launch = function(&tables::HIP_RUNTIME, "hipLaunchKernel");
        let types: Vec<_> = names
            .parameters(record_kind(&tables::HIP_RUNTIME), launch.operation)
            .iter()
            .map(|p| format!("{} {}", p.type_name, p.name))
            .collect();
        let wanted = [
            "PKv function_address",
            "18rocprofiler_dim3_t numBlocks",
            "18rocprofiler_dim3_t dimBlocks",
            "PPv args",
            "m sharedMemBytes",
            "P12ihipStream_t stream",
        ];
        assert_eq!(types, wanted);
    }
}
