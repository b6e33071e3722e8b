//! The schedule of retention: the bytes of the log are checked every few seconds, the ages every minute, then the
//! budgets of subscriptions. One shard of each node does it, a step at a time; the store arbitrates between nodes.
//! Only the node whose name sorts first checks budgets, because counting reads a lot. Must hold: one step runs at a
//! time; a step that fails is postponed, and the others continue; nothing is deleted by age while the clock is not
//! confirmed.

use super::backlog::Backlog;
use super::budgets::{CountBacklog, ListBudgets};
use super::outcome::Retained;
use super::trim::{Cut, RetentionCheck, SweepCopies};
use crate::core::{Core, Timer};
use crate::settings::RetentionRules;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How often the bytes are checked, and after how many such checks the ages.
const CHECK_MS: u64 = 2_000;
const AGES: u32 = 30;

/// A step, as a decision.
#[derive(Clone)]
pub(super) enum RetentionStep {
    Check(RetentionCheck),
    Cut(Box<Cut>),
    Sweep(SweepCopies),
    ListBudgets(ListBudgets),
    CountBacklog(Box<CountBacklog>),
}

#[derive(Default)]
pub(super) struct Retention {
    checks: u32,
    stage: Stage,
    /// The version of all subscriptions when their budgets were listed.
    listed: Option<u64>,
    /// The subscriptions that have a budget, with their counts.
    bounded: BTreeMap<Arc<str>, (u64, Option<Backlog>)>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Check {
        ages: bool,
    },
    Cut {
        ages: bool,
    },
    Sweep,
    ListBudgets,
    /// These are counted next.
    Count(VecDeque<Arc<str>>),
}

impl Retention {
    /// The first check runs soon.
    pub fn start(core: &mut Core) {
        if core.index == 0 && core.node.settings.topics.retention.is_some() {
            core.agenda.set(core.now + CHECK_MS, Timer::Retention);
        }
    }

    /// A check is due, unless the last one is still running.
    pub fn wake(&mut self, core: &mut Core) -> Option<RetentionStep> {
        core.agenda.set(core.now + CHECK_MS, Timer::Retention);
        let rules: RetentionRules = core.node.settings.topics.retention?;
        if !matches!(self.stage, Stage::Idle) {
            return None;
        }
        // Delete nothing by age with a clock that may be wrong; the check waits until the clock is confirmed.
        let is_due = self.checks.is_multiple_of(AGES);
        let deletion_time = core.node.deletion_time(core.now).filter(|_| is_due);
        if deletion_time.is_some() || !is_due {
            self.checks = self.checks.wrapping_add(1);
        }
        self.stage = Stage::Check { ages: deletion_time.is_some() };
        Some(RetentionStep::Check(RetentionCheck::new(rules, deletion_time)))
    }

    /// A step has ended; `None`: it failed. Returns the next step.
    pub fn next(&mut self, core: &Core, result: Option<Retained>) -> Option<RetentionStep> {
        match (std::mem::take(&mut self.stage), result) {
            (Stage::Check { ages }, Some(Retained::Checked(plan))) if !plan.is_empty() => {
                self.stage = Stage::Cut { ages };
                Some(RetentionStep::Cut(Box::new(Cut::new(plan))))
            }
            (Stage::Check { ages: true } | Stage::Cut { ages: true }, _) => {
                self.stage = Stage::Sweep;
                Some(RetentionStep::Sweep(SweepCopies::new()))
            }
            (Stage::Check { .. } | Stage::Cut { .. } | Stage::Sweep, _) => self.list_budgets(core),
            (Stage::ListBudgets, Some(Retained::Listed(listed))) => {
                if let Some((version, budgets)) = listed {
                    self.keep(version, budgets);
                }
                self.count(self.bounded.keys().cloned().collect())
            }
            (Stage::Count(left), result) => {
                if let Some(Retained::Counted(name, backlog)) = result
                    && let Some((_, counted)) = self.bounded.get_mut(&name)
                {
                    *counted = backlog;
                }
                self.count(left)
            }
            (Stage::ListBudgets | Stage::Idle, _) => None,
        }
    }

    fn list_budgets(&mut self, core: &Core) -> Option<RetentionStep> {
        let own = &core.node.name;
        if core.node.other_nodes().iter().any(|name| name < own) {
            self.bounded.values_mut().for_each(|(_, counted)| *counted = None);
            return None;
        }
        self.stage = Stage::ListBudgets;
        Some(RetentionStep::ListBudgets(ListBudgets::new(self.listed)))
    }

    fn keep(&mut self, version: u64, budgets: BTreeMap<Arc<str>, u64>) {
        self.listed = Some(version);
        let mut before = std::mem::take(&mut self.bounded);
        for (name, budget) in budgets {
            let counted = before.remove(&name).filter(|(known, _)| *known == budget);
            self.bounded.insert(name, (budget, counted.and_then(|(_, counted)| counted)));
        }
    }

    fn count(&mut self, mut left: VecDeque<Arc<str>>) -> Option<RetentionStep> {
        while let Some(name) = left.pop_front() {
            if let Some((budget, counted)) = self.bounded.get_mut(&name) {
                let step = CountBacklog::new(name, *budget, counted.take());
                self.stage = Stage::Count(left);
                return Some(RetentionStep::CountBacklog(Box::new(step)));
            }
        }
        None
    }
}
