//! Generates the description of OpenMP's events, as AMD's SDK tells them.

use super::tables::function;
use super::{Text, enumerators, number, object, text};
use serde_json::{Value, json};
use std::fmt::Write;

/// The union of the events' arguments; its members have the operations' names.
const UNION: &str = "rocprofiler_ompt_args_t";
/// The operation that has no callback of OpenMP's: the runtime's own functions.
const FUNCTIONS: &str = "callback_functions";
/// Events whose callback has the type of another event's (source: OpenMP 5.2, sections 19.5.2.12
/// to 19.5.2.15 and 19.5.2.31).
const TYPE_OF: &[(&str, &str)] = &[
    ("sync_region_wait", "sync_region"),
    ("reduction", "sync_region"),
    ("mutex_acquired", "mutex"),
    ("mutex_released", "mutex"),
    ("lock_destroy", "mutex"),
    ("lock_init", "mutex_acquire"),
];
/// Parameters that the SDK names otherwise than OpenMP's header does.
const NAME_OF: &[(&str, &str)] = &[
    ("src_addr", "src_address"),
    ("dest_addr", "dst_address"),
    ("dest_device_num", "dst_device_num"),
];

fn other<'a>(names: &[(&'a str, &'a str)], name: &'a str) -> &'a str {
    let found = names.iter().find(|(from, _)| *from == name);
    found.map_or(name, |(_, to)| to)
}

/// Returns the parameters of an operation.
fn parameters(sdk: &Value, operation: &str) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let (place, key) = match operation {
        FUNCTIONS => (
            ["structs", "rocprofiler_ompt_callback_functions_t"],
            "fields",
        ),
        _ => (["typedefs", ""], "params"),
    };
    let name = format!("ompt_callback_{}_t", other(TYPE_OF, operation));
    let path = [place[0], if key == "fields" { place[1] } else { &name }];
    let list = object(sdk, &path)?.get(key).and_then(Value::as_array);
    let mut list = list.ok_or_else(|| format!("{name} has no {key}"))?.clone();
    for parameter in &mut list {
        let given = text(parameter, "name")?.to_owned();
        if let Some(parameter) = parameter.as_object_mut() {
            parameter.insert("name".into(), other(NAME_OF, &given).into());
        }
    }
    Ok(list)
}

/// Returns `ompt.rs`: the operations as functions, and OpenMP's numbers of their callbacks.
///
/// The SDK's structs of arguments are not in the JSON; their sizes are. They consist of the
/// callback's parameters in order, with C's alignment, which these sizes confirm.
pub fn generate(sdk: &Value) -> Text {
    let members = object(sdk, &["structs", UNION])?
        .get("fields")
        .and_then(Value::as_array)
        .ok_or("the union of OpenMP's arguments has no members")?;
    let numbers = object(sdk, &["enums", "ompt_callbacks_t", "values"])?;
    let mut functions = String::new();
    let mut callbacks = String::new();
    let operations = enumerators(sdk, "rocprofiler_ompt_operation_t")?;
    for (name, operation) in &operations {
        let name = name.trim_start_matches("ROCPROFILER_OMPT_ID_");
        let member = members
            .iter()
            .find(|member| text(member, "name").is_ok_and(|member| member == name))
            .ok_or_else(|| format!("no arguments of {name}"))?;
        let entry = json!({
            "ret": { "type": "void", "class": "void", "size": 0 },
            "params": parameters(sdk, name)?,
            "offset": 0,
        });
        let slot = super::tables::Slot {
            name,
            operation: *operation,
            known: true,
            entry: &entry,
        };
        let size = function(&mut functions, &slot).map_err(|e| format!("{name}: {e}"))?;
        let expected = number(member, "size")?;
        if size != expected {
            return Err(
                format!("the arguments of {name} take {size} bytes, not {expected}").into(),
            );
        }
        let callback = format!("ompt_callback_{name}");
        let callback = numbers.get(&callback).and_then(Value::as_i64).unwrap_or(0);
        write!(callbacks, "{callback}, ")?;
    }
    Ok(format!(
        "/// The operations as functions with arguments.\npub static FUNCTIONS: &[Function] = &[\n{functions}];\n\
         /// OpenMP's number of the callback of each operation (`ompt_callbacks_t`); 0 where it has none.\n\
         pub static CALLBACKS: [i32; {}] = [{callbacks}];\n",
        operations.len()
    ))
}
