//! The options of a what-if.

use clap::{Args, ValueEnum};
use nearpage::Model;
use nearpage::rules::CacheRule;
use nearpage_bundle::predict::ModelChoice;
use nearpage_machine::{Budget, MachineDescription};
use nearpage_replay::{CpuRule, Replay, Tunable, Wish};
use nearpage_slab::SlabRules;

use super::ReplayFailure;
use crate::commands::CommandError;
use crate::commands::input::{
    RulesChoice, STANDARD, list_of_keys, models_and_slabs, read_machine_text,
};

/// What is to be different.
#[derive(Args, Debug)]
#[command(next_help_heading = "What if")]
pub(super) struct WhatIfArgs {
    /// The rules to replay under, instead of the recorded kernel's; may be given several times
    #[arg(long, value_parser = models_and_slabs())]
    model: Vec<RulesChoice>,

    /// A tunable: pcp.batch_scale_max=0, vm.watermark_scale_factor=200; --set help lists them
    #[arg(long, value_name = "KEY=VALUE|help")]
    set: Vec<String>,

    /// Whether scans of zonelists remember full zones
    #[arg(long, value_enum, value_name = "RULE")]
    zonelist_cache: Option<ZonelistCache>,

    /// Another machine, all of whose memory is free: a file that nearpage topo --topology reads (- is standard input), the
    /// name of one that comes with nearpage (memoryless-8n2m), or the short form in quotes ("--numa 2G,cpus=0-1 --numa 0,cpus=2-3")
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    pub(super) topology: Option<String>,

    /// Which of its CPUs plays a recorded one; needs --cpus or --topology [default: socket]
    #[arg(long, value_enum, value_name = "RULE")]
    map_cpus: Option<MapCpus>,

    /// Copies of the trace at once; needs --cpus or --topology
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    repeat: u32,

    /// CPUs of a machine with the recorded nodes, dealt out over those that have CPUs, and with memory for --repeat
    #[arg(long, value_name = "M", conflicts_with = "topology", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: Option<u32>,
}

/// `--zonelist-cache`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ZonelistCache {
    /// None, as Linux since 4.4
    Off,
    /// As Linux until 4.3: one bit a zone
    Original,
    /// nearpage's: by order and watermark
    Keyed,
}

/// `--map-cpus`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MapCpus {
    /// CPUs that share a node stay together: those of the n-th recorded node with CPUs go to the n-th one
    Socket,
    /// Each task has a CPU of its own, by its number
    Comm,
    /// One after the other over the nodes
    RoundRobin,
}

/// The value of an option that asks for a list of values.
pub(super) const HELP: &str = "help";

impl WhatIfArgs {
    /// Whether the tunables are to be listed.
    pub(super) fn asks_for_help(&self) -> bool {
        self.set.iter().any(|given| given == HELP)
    }

    /// Whether the machine comes from standard input.
    pub(super) fn reads_standard_input(&self) -> bool {
        self.topology.as_deref() == Some(STANDARD)
    }

    /// Options that mean nothing without others.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        let has_machine = self.cpus.is_some() || self.topology.is_some();
        let refused = [("--repeat", self.repeat > 1), ("--map-cpus", self.map_cpus.is_some())]
            .into_iter()
            .find(|(_, is_given)| *is_given && !has_machine);
        match refused {
            Some((option, _)) => {
                let problem = format!("{option} needs a machine: --cpus M or --topology MACHINE");
                Err(CommandError::Usage(problem))
            }
            None => Ok(()),
        }
    }

    /// What is asked for, of the machine of a replay.
    pub(super) fn wish(&self, replay: &Replay, budget: &Budget) -> Result<Wish, CommandError> {
        let is_other = self.page_models().any(|choice| choice != ModelChoice::Auto);
        let model = if is_other { self.models(replay).into_iter().next() } else { None };
        let tunables = self.set.iter().map(|given| given.parse::<Tunable>());
        let tunables = tunables.collect::<Result<_, _>>().map_err(ReplayFailure::Set)?;
        let zonelist_cache = self.zonelist_cache.map(|rule| match rule {
            ZonelistCache::Off => CacheRule::Off,
            ZonelistCache::Original => CacheRule::Original,
            ZonelistCache::Keyed => CacheRule::Keyed,
        });
        let cpus = match self.map_cpus {
            None | Some(MapCpus::Socket) => CpuRule::Socket,
            Some(MapCpus::Comm) => CpuRule::Comm,
            Some(MapCpus::RoundRobin) => CpuRule::RoundRobin,
        };
        let machine = self.machine(replay, budget)?;
        Ok(Wish { model, tunables, zonelist_cache, machine, cpus, repeat: self.repeat })
    }

    /// The rules that are named, in their order, each once.
    pub(super) fn models(&self, replay: &Replay) -> Vec<Model> {
        let kernel = &replay.bundle().recording().kernel;
        let mut models: Vec<Model> = Vec::new();
        for model in self.page_models().map(|choice| choice.for_kernel(kernel).model) {
            if models.iter().all(|known| known.name != model.name) {
                models.push(model);
            }
        }
        models
    }

    fn page_models(&self) -> impl Iterator<Item = ModelChoice> {
        self.model.iter().filter_map(|choice| match choice {
            RulesChoice::Pages(model) => Some(*model),
            RulesChoice::Objects(_) => None,
        })
    }

    /// The rules of objects that are named, in their order, each once.
    pub(super) fn slab_rules(&self) -> Vec<SlabRules> {
        let mut all = Vec::new();
        for choice in &self.model {
            match choice {
                RulesChoice::Objects(rules) if !all.contains(rules) => all.push(*rules),
                RulesChoice::Objects(_) | RulesChoice::Pages(_) => {}
            }
        }
        all
    }

    fn machine(
        &self,
        replay: &Replay,
        budget: &Budget,
    ) -> Result<Option<MachineDescription>, CommandError> {
        Ok(match (self.topology.as_deref(), self.cpus) {
            (Some(text), _) => Some(read_machine_text(text, budget)?),
            (None, Some(cpus)) => Some(replay.scaled_machine(cpus, self.repeat)?),
            (None, None) => None,
        })
    }
}

/// The tunables with their values, a line each.
pub(in crate::commands) fn tunables() -> String {
    list_of_keys(Tunable::keys())
}
