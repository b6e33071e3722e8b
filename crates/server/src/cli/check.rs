//! `tavern check`: validates the configuration and shows every value with its origin.

use super::options::{ConfigOptions, print_warnings};
use super::{print_line, table};
use crate::auth::Verifier;
use crate::config::{EffectiveValue, ServerMode, example};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct CheckArgs {
    /// Check as `tavern dev` would read it
    #[arg(long)]
    dev: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Print a configuration file with every key, its meaning and its default, and check nothing
    #[arg(long, exclusive = true)]
    example: bool,
    #[command(flatten)]
    options: ConfigOptions,
}

pub fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    if args.example {
        print_line(example::file(&[]).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mode = if args.dev { ServerMode::Dev } else { ServerMode::Serve };
    let loaded = args.options.load(mode, true)?;
    let mut errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    if let Err(error) = Verifier::new(&loaded.config) {
        errors.push(error.to_string());
    }
    let entries = loaded.config.entries();
    if args.json {
        let value = |entry: &EffectiveValue| json!({"key": entry.key, "value": entry.value, "origin": entry.origin.to_string()});
        let values: Vec<Value> = entries.iter().map(value).collect();
        let report = json!({
            "valid": errors.is_empty(), "errors": errors, "warnings": loaded.config.warnings(), "values": values,
        });
        print_line(&report.to_string())?;
    } else {
        let mut rows = vec![["KEY", "VALUE", "ORIGIN"].map(str::to_owned).to_vec()];
        rows.extend(
            entries.iter().map(|entry| {
                vec![entry.key.clone(), shown(&entry.key, &entry.value), entry.origin.to_string()]
            }),
        );
        print_line(table::columns(&rows).trim_end())?;
        eprintln!();
        print_warnings(&loaded.config);
        if errors.is_empty() {
            eprintln!("the configuration is valid");
        } else {
            eprintln!("{} {} in the configuration:", errors.len(), plural(errors.len()));
            for error in &errors {
                eprintln!("  {error}");
            }
        }
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "error" } else { "errors" }
}

/// A value for people: lists without quotes, an absent value as a dash.
fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("[{}]", texts.join(", "))
        }
        Value::Number(number) if key == "limits.commands_per_second" && number.as_u64() == Some(0) => {
            "0 (no limit)".to_owned()
        }
        other => other.to_string(),
    }
}
