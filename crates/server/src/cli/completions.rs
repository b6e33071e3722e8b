//! `tavern completions`: what a shell must know to complete the command line, on stdout. Made from the command line itself,
//! so it cannot know less or more than the program.

use clap_complete::{Shell, generate};
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell that reads it
    shell: Shell,
}

pub fn run(args: CompletionsArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let name = command.get_name().to_owned();
    // Made whole first: the generator does not know what to do when a pipe ends.
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
