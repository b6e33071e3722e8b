//! One run of a program that measures cases: its figures, its faults, and where they are written.
//! Must hold: a failed case is reported and does not affect the others.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::compare::machine::{Date, Machine};
use crate::figure::{self, Figure, Figures};

#[derive(Serialize)]
pub struct Report {
    #[serde(skip)]
    name: &'static str,
    #[serde(skip)]
    heading: &'static str,
    date: String,
    machine: Machine,
    /// Other runnable processes at the start, averaged over one minute.
    load: f64,
    figures: Vec<Figure>,
    faults: Vec<String>,
}

impl Report {
    /// `name` begins the name of its file, `heading` its section of the page.
    pub fn begin(name: &'static str, heading: &'static str) -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0);
        let (date, machine) = (String::new(), Machine::here());
        Report { name, heading, date, machine, load, figures: Vec::new(), faults: Vec::new() }
    }

    pub fn add(&mut self, case: &str, found: anyhow::Result<Vec<Figure>>) {
        match found {
            Ok(found) => {
                eprintln!("{case}\n{}", Figures(&found).terminal());
                self.figures.extend(found);
            }
            Err(error) => self.faults.push(format!("{case}: {error:#}")),
        }
    }

    /// Writes the samples and, when there is something to explain it with, the section of the page.
    pub fn end(mut self, folder: &Path, page: Option<&str>) -> anyhow::Result<()> {
        let date = Date::now();
        self.date = date.day();
        self.faults.iter().for_each(|fault| println!("fault: {fault}"));
        println!("samples: {}", self.write_json(folder, date)?.display());
        let Some(explained) = page else { return Ok(()) };
        let path = folder.join("RESULTS.md");
        let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Results\n".into());
        std::fs::write(&path, figure::with_section(&page, &self.section(explained)))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn write_json(&self, folder: &Path, date: Date) -> anyhow::Result<PathBuf> {
        let out = folder.join("out");
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let path = out.join(format!("{}-{}.json", self.name, date.stamp()));
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn section(&self, explained: &str) -> String {
        let machine = &self.machine;
        let mut out = format!(
            "{}\n\nMeasured on {} by `make bench-{}` on {}, {} cores, Linux {}; the load shares the cores \
             with the servers. A value is the median of the rounds, with the lowest and the highest in \
             parentheses. At the start, {:.1} other processes were runnable, which lowers rates more than processor \
             time. {explained}\n\n",
            self.heading, self.date, self.name, machine.processor, machine.cores, machine.kernel, self.load
        );
        out.push_str(&Figures(&self.figures).markdown());
        for fault in &self.faults {
            out.push_str(&format!("\n- Fault: {}\n", fault.lines().next().unwrap_or_default()));
        }
        out
    }
}
