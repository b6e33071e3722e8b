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
    const LEFT_OUT: [&str; 7] = ["/", "/assets/*", "/demo", "/demo/*", "/docs", "/docs/*", "/engine.io/"];

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
