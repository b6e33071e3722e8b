//! `tavern completions`: prints the completion script of a shell, generated from the command line definition.

use clap_complete::{Shell, generate};
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub fn run(args: CompletionsArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let name = command.get_name().to_owned();
    // Generated in memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    generate(args.shell, &mut command, name, &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
