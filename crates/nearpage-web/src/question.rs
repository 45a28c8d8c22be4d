//! What is asked.

use nearpage_bundle::predict::{ModelChoice, UnknownModel};
use nearpage_replay::CpuRule;
use nearpage_report::Origin;
use serde::Deserialize;

use crate::kind::Kind;

/// What is asked about a content: the options of the commands, by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Question {
    /// What the content is called.
    pub name: String,
    /// What it is, if it is not to be recognised.
    pub kind: Option<Kind>,
    /// The rules: `--model`.
    pub model: Option<String>,
    /// Settings: `--set KEY=VALUE`.
    pub set: Vec<String>,
    /// Fallback orders as after a rebuild: `--rebuilt`.
    pub rebuilt: bool,
    /// Another machine, for a what-if: `--topology`.
    pub machine: Option<String>,
    /// Which of its CPUs plays a recorded one: `--map-cpus`.
    pub map_cpus: MapCpus,
    /// More starts: `--starts`.
    pub starts: u32,
    /// A frame or a time to explain: `--explain`.
    pub explain: Option<String>,
}

/// Which CPU plays which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapCpus {
    /// CPUs that share a node stay together.
    #[default]
    Socket,
    /// Each task has a CPU of its own.
    Comm,
    /// One after the other over the nodes.
    RoundRobin,
}

impl MapCpus {
    pub(crate) fn rule(self) -> CpuRule {
        match self {
            MapCpus::Socket => CpuRule::Socket,
            MapCpus::Comm => CpuRule::Comm,
            MapCpus::RoundRobin => CpuRule::RoundRobin,
        }
    }

    fn name(self) -> &'static str {
        match self {
            MapCpus::Socket => "socket",
            MapCpus::Comm => "comm",
            MapCpus::RoundRobin => "round-robin",
        }
    }
}

impl Question {
    /// The rules that are asked for.
    pub(crate) fn model(&self) -> Result<Option<ModelChoice>, UnknownModel> {
        self.model.as_deref().map(str::parse).transpose()
    }

    /// The command that asks the same.
    pub(crate) fn origin(&self, kind: Kind) -> Origin {
        // What was pasted is no file: the command reads what it is given.
        let name = if self.name == "pasted" { "-" } else { &self.name };
        let mut words: Vec<String> = vec!["nearpage".into()];
        let mut add = |given: &[&str]| words.extend(given.iter().map(|word| (*word).to_owned()));
        match kind {
            // A machine in the short form is named by it.
            Kind::Machine if self.name.starts_with("--numa") => {
                add(&["topo"]);
                add(&self.name.split_whitespace().collect::<Vec<_>>());
            }
            Kind::Machine => add(&["topo", "--topology", name]),
            Kind::Log => add(&["explain", name]),
            Kind::Recording => add(&["replay", name]),
            Kind::Trace => add(&["whatif", name]),
        }
        if kind != Kind::Log {
            let set = if kind == Kind::Trace { "--change" } else { "--set" };
            let model = if kind == Kind::Trace { "--rules" } else { "--model" };
            self.model.iter().for_each(|name| add(&[model, name]));
            self.set.iter().for_each(|given| add(&[set, given]));
        }
        match (kind, &self.machine) {
            (Kind::Machine, _) if self.rebuilt => add(&["--rebuilt"]),
            (Kind::Recording, Some(machine)) => {
                add(&["--topology", machine, "--map-cpus", self.map_cpus.name()]);
            }
            (Kind::Trace, Some(machine)) => add(&["--machine", machine]),
            _ => {}
        }
        if kind == Kind::Recording {
            let starts = self.starts.to_string();
            if self.starts > 0 {
                add(&["--starts", &starts]);
            }
            self.explain.iter().for_each(|subject| add(&["--explain", subject]));
        }
        Origin::new(words.into_iter().map(Into::into), "none: nothing is random".into())
    }
}
