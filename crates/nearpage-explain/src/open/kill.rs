//! The end of a kill's report: the table of tasks, why somebody was ended, who, or why nobody.

use super::{Open, Part};
use crate::piece::{self, Constraint, Piece};
use crate::report::{Memcg, NAMES_MOST, TASKS_MOST};

impl Open {
    /// Whether a kill for the limit of a group, or for want of memory, can be this report's.
    pub(super) fn is_group(&mut self, of_group: Option<bool>) -> bool {
        let report = &mut self.report;
        match (of_group, &report.memcg) {
            (Some(true), None) if report.zones.is_empty() => {
                report.memcg = Some(Memcg::default());
                true
            }
            (Some(of_group), memcg) => of_group == memcg.is_some(),
            (None, _) => true,
        }
    }

    pub(super) fn take_end(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::TaskHead(words) => {
                if self.task_head.is_empty() && self.reach(Part::Tasks) {
                    self.task_head = words.clone();
                    return true;
                }
                false
            }
            Piece::TaskRow(words) => {
                if self.part != Part::Tasks {
                    return false;
                }
                let Some(task) = piece::task(&self.task_head, words) else { return false };
                self.report.tasks_listed += 1;
                let names = &mut self.report.by_name;
                if names.len() < NAMES_MOST || names.contains_key(&task.name) {
                    let (count, pages) = names.entry(task.name.clone()).or_default();
                    (*count, *pages) = (*count + 1, pages.saturating_add(task.rss_pages));
                }
                let tasks = &mut self.report.tasks;
                let at = tasks.partition_point(|other| other.rss_pages >= task.rss_pages);
                tasks.insert(at, task);
                tasks.truncate(TASKS_MOST);
                true
            }
            Piece::Constraint(constraint) => {
                let of_group = constraint.memcg.is_some();
                let is_others = self.report.lacks_head && of_group != self.report.memcg.is_some();
                let is_first = self.report.constraint.is_none() && self.part <= Part::Reason;
                if !is_first
                    || is_others && self.part > Part::Head
                    || of_group && !self.is_group(Some(true))
                {
                    return false;
                }
                self.part = Part::Reason;
                self.take_constraint(constraint);
                true
            }
            Piece::GroupKill => {
                let is_new = !self.is_group_kill
                    && (self.part == Part::Victim
                        || self.report.lacks_head && self.part == Part::Head);
                self.is_group_kill |= is_new;
                is_new && (self.reach(Part::Reason) || self.part == Part::Victim)
            }
            Piece::Chosen(of_group, who) => {
                let is_own = self.part <= Part::Reason
                    && self.is_group(Some(*of_group))
                    && self.reach(Part::Reason);
                if is_own {
                    self.report.chosen = self.report.chosen.take().or_else(|| who.clone());
                }
                is_own
            }
            // It may be that of a kill before: the line that says who was ended tells more.
            Piece::Reaped(pid, name) => {
                let may = self.part >= Part::Tasks && self.report.victim.is_none();
                if may {
                    self.report.reaped.get_or_insert_with(|| (*pid, name.clone()));
                }
                may
            }
            Piece::Panic(words) => {
                let may = self.reach(Part::Reason);
                if may {
                    self.report.panic.get_or_insert_with(|| words.clone());
                }
                may
            }
            Piece::Killed(of_group, victim) if self.is_group_kill && self.part == Part::Victim => {
                // The one that was chosen is ended with the others once more.
                let is_other = self.report.victim.as_ref().is_some_and(|of| of.pid != victim.pid);
                let is_own = self.is_group(*of_group);
                self.report.also_ended += u64::from(is_own && is_other);
                is_own
            }
            // All tasks of one memory have a line, before Linux 2.6.19.
            Piece::Killed(_, victim) if self.report.is_nameless_kill() => {
                let first = self.report.victim.get_or_insert_with(|| (**victim).clone());
                let is_own = first.name == victim.name;
                self.report.also_ended += u64::from(is_own && first.pid != victim.pid);
                self.part = Part::Victim;
                is_own
            }
            Piece::Killed(of_group, victim) => {
                // A kernel that ended itself ends nobody else.
                if self.report.victim.is_some()
                    || self.report.panic.is_some()
                    || !self.is_group(*of_group)
                    || !self.reach(Part::Victim)
                {
                    return false;
                }
                self.report.victim = Some((**victim).clone());
                self.settle_page_tables();
                true
            }
            _ => false,
        }
    }

    /// Linux 5.4 printed bytes of page tables as KiB: the table of tasks has the same number, in bytes.
    fn settle_page_tables(&mut self) {
        let Some(victim) = &mut self.report.victim else { return };
        let task = self.report.tasks.iter().find(|task| task.pid == victim.pid);
        if victim.pgtables.is_some() && task.is_some_and(|task| task.pgtables == victim.pgtables) {
            victim.pgtables = victim.pgtables.map(|bytes| bytes / 1024);
        }
    }

    /// Newer kernels print the nodes here and no longer in the header.
    fn take_constraint(&mut self, constraint: &Constraint) {
        let report = &mut self.report;
        report.constraint = Some(constraint.name.clone().unwrap_or_default());
        report.nodemask = report.nodemask.take().or_else(|| constraint.nodemask.clone());
        report.mems_allowed =
            report.mems_allowed.take().or_else(|| constraint.mems_allowed.clone());
        report.cpuset = report.cpuset.take().or_else(|| constraint.cpuset.clone());
        if let Some(path) = &constraint.memcg {
            let memcg = report.memcg.get_or_insert_with(Memcg::default);
            memcg.path = Some(path.clone());
            memcg.task = memcg.task.take().or_else(|| constraint.task_memcg.clone());
        }
    }
}
