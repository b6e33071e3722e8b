//! `tavern dashboard`: a link that opens the dashboard of a running server, once and within a minute. The code is behind the `#`:
//! browsers do not send that part, so no proxy and no log sees it.

use super::options::ServerOptions;
use super::{block_on, print_line};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct DashboardArgs {
    #[command(flatten)]
    server: ServerOptions,
}

pub fn run(args: DashboardArgs) -> anyhow::Result<ExitCode> {
    let url = args.server.url();
    let code =
        block_on(async move { Ok(args.server.api_with_key("admin")?.keys().dashboard_code().await?) })?;
    print_line(&format!("{}/#code={code}", url.trim_end_matches('/')))?;
    eprintln!("The link works once, within 60 seconds.");
    Ok(ExitCode::SUCCESS)
}
