//! JSON Schema, as far as our own schemas use it.

use serde_json::Value;

/// Returns what a document's schema does not allow in it: a path and a reason each. An unknown
/// keyword is also a fault.
pub fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, document, "$", &mut found);
    found
}

fn check(schema: &Value, document: &Value, at: &str, found: &mut Vec<String>) {
    let mut fault = |why: String| found.push(format!("{at}: {why}"));
    let members = schema.as_object();
    for (keyword, wanted) in members.into_iter().flatten() {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "properties" | "items" => {}
            "type" => {
                let one = [wanted.clone()];
                let types = wanted.as_array().map_or(&one[..], Vec::as_slice);
                if !types.iter().any(|name| is(document, name)) {
                    fault(format!("{document} is no {wanted}"));
                }
            }
            "enum" => {
                let listed = wanted.as_array().is_some_and(|all| all.contains(document));
                if !listed {
                    fault(format!("{document} is none of {wanted}"));
                }
            }
            "minimum" => {
                if document
                    .as_f64()
                    .is_some_and(|number| Some(number) < wanted.as_f64())
                {
                    fault(format!("{document} is less than {wanted}"));
                }
            }
            "minLength" => {
                let short = |text: &str| Some(text.chars().count() as u64) < wanted.as_u64();
                if document.as_str().is_some_and(short) {
                    fault(format!("{document} is shorter than {wanted}"));
                }
            }
            "required" => {
                for name in wanted
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    if document.is_object() && document.get(name).is_none() {
                        fault(format!("{name} is missing"));
                    }
                }
            }
            "additionalProperties" => {
                for name in document
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name)
                {
                    if *wanted == Value::Bool(false) && schema["properties"].get(name).is_none() {
                        fault(format!("{name} is not in the schema"));
                    }
                }
            }
            other => fault(format!("the schema's keyword {other} is not known")),
        }
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = document.get(name) {
            check(inner, value, &format!("{at}.{name}"), found);
        }
    }
    if let Some(items) = schema.get("items") {
        for (number, item) in document.as_array().into_iter().flatten().enumerate() {
            check(items, item, &format!("{at}[{number}]"), found);
        }
    }
}

fn is(document: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("object") => document.is_object(),
        Some("array") => document.is_array(),
        Some("string") => document.is_string(),
        Some("integer") => document.is_i64() || document.is_u64(),
        Some("number") => document.is_number(),
        Some("boolean") => document.is_boolean(),
        Some("null") => document.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_allowed_is_found() {
        let schema = json!({
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": ["integer", "null"], "minimum": 1}, "b": {"type": "array", "items": {"enum": ["x"]}}},
        });
        assert!(faults(&schema, &json!({"a": null, "b": ["x"]})).is_empty());
        for wrong in [
            json!({"b": []}),
            json!({"a": 0}),
            json!({"a": "1"}),
            json!({"a": 1, "b": ["y"]}),
            json!({"a": 1, "c": 1}),
            json!([]),
        ] {
            assert_eq!(faults(&schema, &wrong).len(), 1, "{wrong}");
        }
        assert_eq!(faults(&json!({"pattern": "x"}), &json!("x")).len(), 1);
    }
}
