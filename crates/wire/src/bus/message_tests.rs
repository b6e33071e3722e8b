//! Compares the messages with `proto/tavern.proto`.

use std::collections::BTreeMap;

/// The numbers of the fields of every message, by its name.
type Messages = BTreeMap<String, Vec<u32>>;

fn of_proto(text: &str) -> Messages {
    let mut messages = Messages::new();
    let mut open: Option<String> = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some(rest) = line.strip_prefix("message ") {
            let name = rest.trim_end_matches("{}").trim_end_matches('{').trim().to_owned();
            messages.insert(name.clone(), Vec::new());
            open = (!line.ends_with('}')).then_some(name);
        } else if let (Some(name), Some((_, number))) = (&open, line.split_once(" = ")) {
            let number = number.trim_end_matches(';').parse().expect(line);
            messages.get_mut(name).expect(name).push(number);
        } else if line.starts_with("enum ") {
            open = None;
        }
    }
    messages
}

fn of_code(text: &str) -> Messages {
    let mut messages = Messages::new();
    let mut open = String::new();
    for line in text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]") {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches("{}").trim_end_matches('{').trim();
            open = name.strip_suffix("Record").unwrap_or(name).to_owned();
            messages.insert(open.clone(), Vec::new());
        } else if let Some((_, tags)) = line.split_once("tags = \"") {
            let tags = tags.split('"').next().unwrap_or_default();
            let numbers = tags.split(", ").map(|tag| tag.parse::<u32>().expect(line));
            messages.get_mut(&open).expect(&open).extend(numbers);
        } else if line.starts_with("pub enum ") {
            open.clear();
        } else if let (Some((_, tag)), false) = (line.split_once("tag = \""), open.is_empty()) {
            let number = tag.split('"').next().unwrap_or_default().parse().expect(line);
            messages.get_mut(&open).expect(&open).push(number);
        }
    }
    messages
}

#[test]
fn messages_and_field_numbers_equal_the_proto_file() {
    let proto = of_proto(include_str!("../../../../proto/tavern.proto"));
    let code = of_code(concat!(include_str!("load_message.rs"), include_str!("message.rs")));
    assert!(proto.len() > 10);
    assert_eq!(code, proto);
}
