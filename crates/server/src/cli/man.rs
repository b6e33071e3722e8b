//! `tavern man`: the manual in roff, generated from the command line definition. One page on stdout, or a page for each command in a
//! folder: `tavern.1`, `tavern-serve.1`, `tavern-key-create.1`.

use anyhow::Context;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this existing folder
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub fn run(args: ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    match args.folder {
        Some(folder) => clap_mangen::generate_to(command, &folder)
            .with_context(|| format!("cannot write the pages into {}", folder.display()))?,
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            let mut out = std::io::stdout().lock();
            out.write_all(&page)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
