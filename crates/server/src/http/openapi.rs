//! `/openapi.json`: the description of the HTTP interface. Written by hand, checked by a test against the routes.

use super::body::{HttpResponse, json};

const DESCRIPTION: &str = include_str!("../../assets/openapi.json");

pub fn page() -> HttpResponse {
    json(DESCRIPTION.replace("{{version}}", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::DESCRIPTION;

    #[test]
    fn every_route_and_code_is_described() {
        let description: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        for (method, path) in [
            ("get", "/v1/connect"),
            ("get", "/v1/stream"),
            ("post", "/v1/poll"),
            ("post", "/v1/command"),
            ("post", "/v1/channels/{channel}/messages"),
            ("get", "/v1/channels"),
            ("get", "/v1/channels/{channel}/presence"),
            ("put", "/v1/channels/{channel}/presence/{user}"),
            ("delete", "/v1/channels/{channel}/presence/{user}"),
            ("get", "/v1/overview"),
            ("get", "/v1/settings"),
            ("get", "/v1/users"),
            ("get", "/v1/users/{user}/inbox"),
            ("get", "/v1/users/{user}"),
            ("get", "/v1/users/{user}/following"),
            ("get", "/v1/users/{user}/followers"),
            ("put", "/v1/users/{user}/following/{whom}"),
            ("delete", "/v1/users/{user}/following/{whom}"),
            ("put", "/v1/users/{user}/visibility"),
            ("post", "/v1/users/{user}/messages"),
            ("get", "/v1/sessions/{client}"),
            ("get", "/v1/nodes"),
            ("get", "/v1/parties"),
            ("get", "/v1/parties/{id}"),
            ("post", "/v1/parties/{id}/go/{go_id}"),
            ("get", "/v1/users/{user}/party"),
            ("post", "/v1/users/{user}/party"),
            ("post", "/party"),
            ("get", "/party/ping"),
            ("post", "/party/ping"),
            ("get", "/v1/topics"),
            ("get", "/v1/topics/{topic}"),
            ("put", "/v1/topics/{topic}"),
            ("delete", "/v1/topics/{topic}"),
            ("post", "/v1/topics/{topic}/events"),
            ("get", "/v1/subscriptions"),
            ("get", "/v1/subscriptions/{name}"),
            ("put", "/v1/subscriptions/{name}"),
            ("delete", "/v1/subscriptions/{name}"),
            ("get", "/v1/subscriptions/{name}/events"),
            ("post", "/v1/subscriptions/{name}/replay"),
            ("post", "/v1/subscriptions/{name}/enable"),
            ("post", "/v1/subscriptions/{name}/disable"),
            ("get", "/v1/subscriptions/{name}/dead-letters"),
            ("post", "/v1/subscriptions/{name}/dead-letters/retry"),
            ("get", "/livez"),
            ("get", "/readyz"),
            ("get", "/metrics"),
            ("get", "/client.js"),
        ] {
            assert!(description["paths"][path][method].is_object(), "{method} {path}");
        }
        let codes = description["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
        for code in tavern_wire::error::Code::ALL {
            assert!(codes.iter().any(|known| known == code.as_str()), "{}", code.as_str());
        }
    }
}
