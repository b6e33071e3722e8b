//! The options and the run of a program that measures one case after another.
//! Must hold: a case that failed is reported, and the others still run.

use std::path::PathBuf;

use anyhow::Context;

use crate::figure::Figure;
use crate::report::Report;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The program under test; without it what TAVERN_BIN names, or the `tavern` that was built beside this program
    #[arg(long)]
    tavern: Option<PathBuf>,
    /// Shorter, one round of each; writes no page unless asked
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains one of these parts; see --list
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the results go: out/*.json and the section of RESULTS.md
    #[arg(long, default_value = "bench")]
    folder: PathBuf,
    /// Write the section of RESULTS.md after a quick or partial run too
    #[arg(long)]
    page: bool,
    /// Name the cases and stop
    #[arg(long)]
    list: bool,
}

/// How thorough a run is, and on what.
pub struct Extent {
    pub tavern: PathBuf,
    pub quick: bool,
    pub rounds: usize,
}

/// Where the figures stand.
pub struct Section {
    /// Prefix of the samples file, and suffix of the make target.
    pub name: &'static str,
    pub heading: &'static str,
    /// Explanation for the reader of the page.
    pub explained: &'static str,
}

pub type Case<T> = (&'static str, fn(&T) -> anyhow::Result<Vec<Figure>>);

impl Options {
    /// Measures the chosen cases; `on` adds what only they need.
    pub fn run<T>(
        &self,
        section: &Section,
        cases: &[Case<T>],
        on: impl FnOnce(Extent) -> T,
    ) -> anyhow::Result<()> {
        let wanted =
            |name: &str| self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()));
        let cases: Vec<&Case<T>> = cases.iter().filter(|(name, _)| wanted(name)).collect();
        if self.list {
            cases.iter().for_each(|(name, _)| println!("{name}"));
            return Ok(());
        }
        let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("tavern"));
        let named = self.tavern.clone().or_else(|| std::env::var_os("TAVERN_BIN").map(PathBuf::from));
        let tavern = named.map_or_else(beside, Ok)?;
        let tavern = tavern.canonicalize().with_context(|| format!("no program at {}", tavern.display()))?;
        let rounds = if self.quick { 1 } else { self.rounds.clamp(1, 100) };
        let extent = on(Extent { tavern, quick: self.quick, rounds });
        let mut report = Report::begin(section.name, section.heading);
        for (name, measure) in cases {
            report.add(name, measure(&extent));
        }
        let page = self.page || (!self.quick && self.only.is_empty());
        report.end(&self.folder, page.then_some(section.explained))
    }
}
