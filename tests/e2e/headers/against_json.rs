//! Turns every number, layout and signature of api/*.json that our headers declare into an
//! assertion for the compiler.

use super::{BESIDES, LANGUAGES, compile, include};
use midair_tests::{Result, workspace};
use serde_json::{Map, Value};
use std::fmt::Write;

/// Headers of which we have the enumerators alone: interfaces of other libraries.
const NOT_OURS: [&str; 2] = ["/details/", "omp-tools.h"];

/// A name that our headers do not declare: an old spelling that could not be used.
const NOT_DECLARED: [&str; 1] = ["rocprofiler_agent_set_profile_callback_t"];

/// The assertions, in C11 and in C++17.
const PROLOGUE: &str = r#"
#ifdef __cplusplus
#    include <type_traits>
#    define IS(what, text) static_assert(what, text);
#    define SAME(name, ...) static_assert(std::is_same<decltype(name), __VA_ARGS__>::value, #name);
#    define SAME_TYPE(name, ...) static_assert(std::is_same<name, __VA_ARGS__>::value, #name);
#else
#    define IS(what, text) _Static_assert(what, text);
#    define SAME(name, ...) _Static_assert(__builtin_types_compatible_p(__typeof__(name), __VA_ARGS__), #name);
#    define SAME_TYPE(name, ...) _Static_assert(__builtin_types_compatible_p(name, __VA_ARGS__), #name);
#endif
#define FIELD(type, field, at, bytes) \
    IS(offsetof(type, field) == at && sizeof(((type*) 0)->field) == bytes, #type "." #field)
"#;

fn is_ours(name: &str, value: &Value) -> bool {
    let header = value["header"].as_str().unwrap_or("rocprofiler-sdk/");
    !NOT_DECLARED.contains(&name) && !NOT_OURS.iter().any(|part| header.contains(part))
}

fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .ok_or_else(|| format!("not a text: {value}").into())
}

fn object<'a>(api: &'a Value, key: &str) -> Result<&'a Map<String, Value>> {
    api[key]
        .as_object()
        .ok_or_else(|| format!("no {key}").into())
}

/// Returns a signature as `RESULT ${between}(PARAMETERS)`.
fn signature(function: &Value, between: &str) -> Result<String> {
    let parameters: Vec<&str> = function["params"]
        .as_array()
        .ok_or("no parameters")?
        .iter()
        .map(|parameter| text(&parameter["type"]))
        .collect::<Result<_>>()?;
    let parameters = match parameters.is_empty() {
        true => "void".to_owned(),
        false => parameters.join(", "),
    };
    Ok(format!(
        "{} {between}({parameters})",
        text(&function["ret"]["type"])?
    ))
}

/// How many things of each kind were asserted. A generator that finds nothing must not pass.
#[derive(Default, Debug)]
struct Count {
    values: usize,
    structs: usize,
    fields: usize,
    functions: usize,
    typedefs: usize,
}

fn assertions(api: &Value, out: &mut String, count: &mut Count) -> Result<()> {
    for (name, of) in object(api, "enums")? {
        writeln!(out, "IS(sizeof(enum {name}) == {}, \"{name}\")", of["size"])?;
        for (constant, value) in object(of, "values")? {
            // Some functions are newer than the headers from which the facts were read (1.2.1, see
            // `against_amd`).
            let value = match constant.as_str() {
                "ROCPROFILER_HIP_RUNTIME_API_ID_LAST" => 517,
                _ => value.as_i64().ok_or("not a number")?,
            };
            writeln!(out, "IS((int) {constant} == (int) {value}, \"{constant}\")")?;
            count.values += 1;
        }
    }
    for (name, of) in object(api, "structs")? {
        if !is_ours(name, of) {
            continue;
        }
        writeln!(out, "IS(sizeof({name}) == {}, \"{name}\")", of["size"])?;
        count.structs += 1;
        for field in of["fields"].as_array().ok_or("no fields")? {
            let (kind, field_name) = (text(&field["type"])?, text(&field["name"])?);
            // Bit fields have no address, and anonymous members have no name. The anonymous members
            // come below.
            if field.get("bits").is_some() || kind.contains("anonymous") {
                continue;
            }
            // A macro in HIP's headers renames this function, and the facts were read with that
            // macro.
            let field_name = match field_name {
                "hipChooseDeviceR0600" => "hipChooseDevice",
                other => other,
            };
            let (at, bytes) = (&field["offset"], &field["size"]);
            writeln!(out, "FIELD({name}, {field_name}, {at}, {bytes})")?;
            count.fields += 1;
        }
    }
    for (name, of) in object(api, "functions")? {
        if is_ours(name, of) {
            let signature = signature(of, "")?;
            writeln!(out, "SAME({name}, {signature})")?;
            count.functions += 1;
        }
    }
    for (name, of) in object(api, "typedefs")? {
        let known = |prefix: &str| name.starts_with(prefix);
        if !is_ours(name, of) || !(known("rocprofiler_") || known("roctx")) {
            continue;
        }
        if of.get("params").is_some() {
            writeln!(out, "SAME_TYPE({name}, {})", signature(of, "(*)")?)?;
        } else {
            let alias = text(&of["alias_of"])?;
            let (_, bare) = alias.split_once(' ').unwrap_or(("", alias));
            // A typedef of a struct that we do not declare is not declared, either.
            if api["structs"]
                .get(bare)
                .is_some_and(|of| !is_ours(bare, of))
            {
                continue;
            }
            writeln!(out, "SAME_TYPE({name}, {alias})")?;
        }
        count.typedefs += 1;
    }
    Ok(())
}

/// The members of anonymous unions, which the JSON does not name (source: AMD's headers, by
/// `against_amd`).
const ANONYMOUS: &str = "
FIELD(rocprofiler_record_header_t, category, 0, 4)
FIELD(rocprofiler_record_header_t, kind, 4, 4)
FIELD(rocprofiler_record_header_t, hash, 0, 8)
FIELD(rocprofiler_buffer_tracing_ompt_record_t, target, 64, 32)
FIELD(rocprofiler_buffer_tracing_ompt_record_t, target_data_op, 64, 40)
FIELD(rocprofiler_buffer_tracing_ompt_record_t, target_kernel, 64, 16)
FIELD(rocprofiler_callback_tracing_code_object_load_data_t, rocp_agent, 16, 8)
FIELD(rocprofiler_callback_tracing_code_object_load_data_t, agent_id, 16, 8)
FIELD(rocprofiler_callback_tracing_code_object_load_data_t, storage_file, 72, 4)
FIELD(rocprofiler_callback_tracing_code_object_load_data_t, memory_base, 72, 8)
FIELD(rocprofiler_callback_tracing_code_object_load_data_t, memory_size, 80, 8)
";

#[test]
fn headers_match_the_api_files() -> Result<()> {
    let (mut body, mut count) = (String::new(), Count::default());
    for name in [
        "rocprofiler_sdk.json",
        "rocprofiler_register.json",
        "roctx.json",
    ] {
        let api: Value = serde_json::from_str(&std::fs::read_to_string(
            workspace().join("api").join(name),
        )?)?;
        assertions(&api, &mut body, &mut count)?;
    }
    // These counts would not be reached if a part were skipped by mistake.
    assert!(
        count.values > 1500
            && count.structs > 90
            && count.fields > 1000
            && count.functions > 70
            && count.typedefs > 150,
        "{count:?}"
    );
    let text = format!(
        "{BESIDES}#include <rocprofiler-sdk/rocprofiler.h>\n\
         #include <rocprofiler-register/rocprofiler-register.h>\n#include <rocprofiler-sdk-roctx/api_trace.h>\n\
         #include <rocprofiler-sdk-roctx/roctx.h>\n{PROLOGUE}{body}{ANONYMOUS}int main(void) {{ return 0; }}\n"
    );
    let dir = tempfile::tempdir()?;
    // A function's type is compared without its attributes.
    let flags = [
        format!("-I{}", include()?.display()),
        "-Wno-ignored-attributes".to_owned(),
    ];
    for language in LANGUAGES {
        compile(dir.path(), language, &text, &flags)?;
        // A wrong number must make the compiler fail.
        let wrong = text.replacen(
            "ROCPROFILER_STATUS_ERROR == (int) 1,",
            "ROCPROFILER_STATUS_ERROR == (int) 2,",
            1,
        );
        assert!(wrong != text);
        assert!(compile(dir.path(), language, &wrong, &flags).is_err());
    }
    Ok(())
}
