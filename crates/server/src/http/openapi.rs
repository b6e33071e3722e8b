//! `/openapi.json`: the description of the HTTP interface. Written by hand, checked by a test against the routes.

use super::asset;
use super::body::HttpResponse;
use http::header::HeaderMap;

pub fn page(headers: &HeaderMap) -> HttpResponse {
    asset::tagged("application/json", &asset::OPENAPI[0], headers, "no-cache")
}

#[cfg(test)]
mod tests {
    use crate::http::asset::OPENAPI;
    use crate::http::routes::ROUTES;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Pages for browsers, and the address of another protocol: the document leaves them out.
    const LEFT_OUT: [&str; 11] = [
        "/",
        "/app/{}",
        "/apps/*",
        "/assets/*",
        "/demo",
        "/demo/*",
        "/docs",
        "/docs.md",
        "/docs/*",
        "/engine.io/",
        "/llms.txt",
    ];

    fn document() -> Value {
        serde_json::from_slice(OPENAPI[0].bytes).unwrap()
    }

    /// A path with `{}` for each parameter.
    fn route(path: &str) -> String {
        let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
        segments.collect::<Vec<_>>().join("/")
    }

    #[test]
    fn the_document_has_the_routes_of_the_server_and_no_others() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let names = methods.as_object().unwrap().keys();
            described.extend(names.map(|method| (route(path), method.to_uppercase())));
        }
        let mut served = BTreeSet::new();
        for (path, methods) in ROUTES.iter().filter(|(path, _)| !LEFT_OUT.contains(path)) {
            served.extend(methods.iter().map(|method| ((*path).to_owned(), (*method).to_owned())));
        }
        assert_eq!(described, served);
    }

    /// What a reference stands for.
    fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(place) => document.pointer(place.trim_start_matches('#')).expect("the reference exists"),
            None => value,
        }
    }

    fn has_example(document: &Value, value: &Value) -> bool {
        let own = |value: &Value| !value["example"].is_null() || !value["examples"].is_null();
        own(value) || own(resolved(document, &value["schema"]))
    }

    fn has_text(document: &Value, value: &Value) -> bool {
        let own = |value: &Value| value["description"].as_str().is_some_and(|text| !text.is_empty());
        own(value) || own(resolved(document, &value["schema"]))
    }

    /// The parts of an operation without a description or an example.
    fn missing(document: &Value, name: &str, operation: &Value) -> Vec<String> {
        let mut missing = Vec::new();
        let mut need = |is_there: bool, what: &str| {
            if !is_there {
                missing.push(format!("{name}: {what}"));
            }
        };
        need(has_text(document, operation), "description");
        need(operation["operationId"].is_string() && operation["summary"].is_string(), "id and summary");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(document, parameter);
            need(has_text(document, parameter), &format!("description of {}", parameter["name"]));
            need(has_example(document, parameter), &format!("example of {}", parameter["name"]));
        }
        for (kind, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            need(has_example(document, content), &format!("example of the body {kind}"));
        }
        for (status, answer) in operation["responses"].as_object().expect("responses") {
            let answer = resolved(document, answer);
            need(has_text(document, answer), &format!("description of {status}"));
            for content in answer["content"].as_object().into_iter().flat_map(|content| content.values()) {
                need(has_example(document, content), &format!("example of {status}"));
            }
        }
        missing
    }

    #[test]
    fn every_operation_parameter_and_schema_has_a_description_and_an_example() {
        let document = document();
        let mut gaps = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                gaps.extend(missing(&document, &format!("{method} {path}"), operation));
            }
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            if !has_text(&document, schema) || !has_example(&document, schema) {
                gaps.push(format!("schema {name}"));
            }
        }
        assert!(gaps.is_empty(), "{}", gaps.join("\n"));
    }

    #[test]
    fn operations_of_the_api_list_their_errors() {
        let document = document();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let listed = operation["responses"].as_object().unwrap();
                let wanted: &[&str] = match path.starts_with("/v1/") {
                    true => &["400", "401", "403", "404", "405", "429", "500", "503"],
                    false => &[],
                };
                for status in wanted {
                    assert!(listed.contains_key(*status), "{method} {path} lists no {status}");
                }
            }
        }
    }

    #[test]
    fn every_error_code_is_listed() {
        let document = document();
        let codes = document["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
        for code in tavern_wire::error::Code::ALL {
            assert!(codes.iter().any(|known| known == code.as_str()), "{}", code.as_str());
        }
    }

    #[test]
    fn every_path_parameter_has_a_pattern_or_bounds() {
        let document = document();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for operation in methods.as_object().unwrap().values() {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                for parameter in parameters.filter(|parameter| parameter["in"] == "path") {
                    let name = parameter["schema"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
                    let schema = &document["components"]["schemas"][name];
                    assert!(schema["pattern"].is_string() || schema["maximum"].is_number(), "{path} {name}");
                }
            }
        }
    }
}
