//! The program as a whole: its command line, start and stop, and the structure of the workspace.

mod architecture;
mod cli;
mod cli_events;
mod cli_local;
mod client_api;
mod corpus;
mod docs_pages;
mod document_names;
mod json_in_wire;
mod log_lines;
mod startup;
#[cfg(debug_assertions)]
mod supervisor;
