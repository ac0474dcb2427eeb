//! The enumerations of libraries that the SDK traces, for tools that are built without these
//! libraries' own headers: `LIBRARY/details/*.h`, as AMD has them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::header;
use midair_dev_kit::run::{Outcome, failed};

/// The places below `include/rocprofiler-sdk`, the library's own header, and the library's name.
const FILES: [(&str, &str, &str); 4] = [
    ("rccl/details/rccl.h", "rccl/rccl.h", "RCCL"),
    (
        "rocdecode/details/rocdecode.h",
        "rocdecode/rocdecode.h",
        "rocDecode",
    ),
    (
        "rocdecode/details/rocparser.h",
        "rocdecode/rocparser.h",
        "rocDecode's parser",
    ),
    ("rocjpeg/details/rocjpeg.h", "rocjpeg/rocjpeg.h", "rocJPEG"),
];

/// The enumerations by the name of their type.
pub struct Details<'a>(BTreeMap<&'a str, Enum<'a>>);

struct Enum<'a> {
    tag: &'a str,
    file: &'static str,
    values: Vec<(i64, &'a str)>,
}

impl<'a> Details<'a> {
    pub fn of(sdk: &'a Value) -> Outcome<Details<'a>> {
        let (Some(enums), Some(typedefs)) = (sdk["enums"].as_object(), sdk["typedefs"].as_object())
        else {
            return failed("api/rocprofiler_sdk.json has no enums and typedefs");
        };
        let mut all = BTreeMap::new();
        for (tag, of) in enums {
            let place = of["header"].as_str().unwrap_or_default();
            let place = place.strip_prefix("rocprofiler-sdk/").unwrap_or(place);
            let Some((file, ..)) = FILES.iter().find(|(file, ..)| *file == place) else {
                continue;
            };
            let alias = format!("enum {tag}");
            let name = typedefs
                .iter()
                .find(|(_, of)| of["alias_of"].as_str() == Some(&alias))
                .map_or(tag.as_str(), |(name, _)| name);
            let Some(values) = of["values"].as_object() else {
                return failed(format!("api/rocprofiler_sdk.json: {tag} has no values"));
            };
            let mut values: Vec<(i64, &str)> = values
                .iter()
                .filter_map(|(name, value)| Some((value.as_i64()?, name.as_str())))
                .collect();
            values.sort_unstable();
            all.insert(name, Enum { tag, file, values });
        }
        Ok(Details(all))
    }

    /// Whether a type is one of these enumerations.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the headers, each with its place below the prefix and its text.
    pub fn headers(&self) -> Vec<(String, String)> {
        FILES
            .iter()
            .map(|(file, own, title)| {
                let enums: String = self
                    .0
                    .iter()
                    .filter(|(_, of)| of.file == *file)
                    .map(|(name, of)| of.declared(name))
                    .collect();
                let includes = format!(
                    "#include <rocprofiler-sdk/defines.h>\n\n\
                     /* With {title}'s own header its types are used. */\n\
                     #undef ROCPROFILER_HAVE_OWN_HEADER\n\
                     #if defined(__has_include)\n#    if __has_include(<{own}>)\n\
                     #        include <{own}>\n\
                     #        define ROCPROFILER_HAVE_OWN_HEADER 1\n#    endif\n#endif\n"
                );
                let body = format!(
                    "#if !defined(ROCPROFILER_HAVE_OWN_HEADER)\n\n{enums}#endif\n\
                     #undef ROCPROFILER_HAVE_OWN_HEADER\n"
                );
                let text = header(file, &format!("enumerations of {title}."), &includes, &body);
                (format!("include/rocprofiler-sdk/{file}"), text)
            })
            .collect()
    }

    /// Returns the include lines of a library's headers.
    pub fn includes(library: &str) -> String {
        FILES
            .iter()
            .filter(|(file, ..)| file.split('/').next() == Some(library))
            .map(|(file, ..)| format!("#include <rocprofiler-sdk/{file}>\n"))
            .collect()
    }
}

impl Enum<'_> {
    fn declared(&self, name: &str) -> String {
        let list: Vec<String> = self
            .values
            .iter()
            .map(|(value, name)| format!("    {name} = {value}"))
            .collect();
        format!(
            "typedef enum {}\n{{\n{}\n}} {name};\n\n",
            self.tag,
            list.join(",\n")
        )
    }
}
