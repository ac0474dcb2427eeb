//! The header agrees with the ABI file: one C file of static assertions, made from the ABI file and
//! compiled.

use serde_json::Value;
use std::fmt::Write;

fn assertions(abi: &Value) -> (String, usize) {
    let mut text = String::from(
        "#include <rocprofiler-register/rocprofiler-register.h>\n#include <stddef.h>\n",
    );
    let mut count = 0;
    let mut claim = |text: &mut String, condition: String| {
        writeln!(
            text,
            "_Static_assert({condition}, \"{}\");",
            condition.replace('"', "'")
        )
        .unwrap();
        count += 1;
    };
    for (name, about) in abi["structs"].as_object().unwrap() {
        claim(&mut text, format!("sizeof({name}) == {}", about["size"]));
        claim(&mut text, format!("_Alignof({name}) == {}", about["align"]));
        for field in about["fields"].as_array().unwrap() {
            let member = field["name"].as_str().unwrap();
            claim(
                &mut text,
                format!("offsetof({name}, {member}) == {}", field["offset"]),
            );
            claim(
                &mut text,
                format!("sizeof((({name}*)0)->{member}) == {}", field["size"]),
            );
        }
    }
    for (name, about) in abi["enums"].as_object().unwrap() {
        claim(&mut text, format!("sizeof({name}) == {}", about["size"]));
        for (value, number) in about["values"].as_object().unwrap() {
            claim(&mut text, format!("{value} == {number}"));
        }
    }
    // Each function's type is checked by an initialiser that accepts no other type.
    let types = |params: &Value| -> String {
        let list: Vec<&str> = params
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["type"].as_str().unwrap())
            .collect();
        if list.is_empty() {
            "void".into()
        } else {
            list.join(", ")
        }
    };
    for (number, (name, about)) in abi["functions"].as_object().unwrap().iter().enumerate() {
        let ret = about["ret"]["type"].as_str().unwrap();
        writeln!(
            text,
            "{ret} (*const function_{number})({}) = &{name};",
            types(&about["params"])
        )
        .unwrap();
        count += 1;
    }
    for (number, (name, about)) in abi["typedefs"].as_object().unwrap().iter().enumerate() {
        let Some(ret) = about["ret"]["type"].as_str() else {
            continue;
        };
        writeln!(
            text,
            "{ret} (*typedef_{number})({}); {name}* const same_{number} = &typedef_{number};",
            types(&about["params"])
        )
        .unwrap();
        count += 1;
    }
    (text, count)
}

#[test]
fn the_header_and_the_abi_file_agree() {
    let abi: Value =
        serde_json::from_str(include_str!("../../../../../api/rocprofiler_register.json")).unwrap();
    let (text, count) = assertions(&abi);
    assert!(count >= 30, "only {count} claims were made");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.c");
    std::fs::write(&file, &text).unwrap();
    let object = folder.path().join("layout.o");
    crate::common::compile(&[
        "-Werror=incompatible-pointer-types",
        "-c",
        "-o",
        object.to_str().unwrap(),
        file.to_str().unwrap(),
    ]);
    // This shows that the assertions can fail.
    std::fs::write(
        &file,
        text.replace(
            "sizeof(rocprofiler_register_registration_info_t) == 32",
            "sizeof(rocprofiler_register_registration_info_t) == 40",
        ),
    )
    .unwrap();
    let refused = std::panic::catch_unwind(|| {
        crate::common::compile(&["-c", "-o", "/dev/null", file.to_str().unwrap()])
    });
    assert!(refused.is_err());
}
