//! `nearpage --help`: the commands by what people want.

use std::fmt::Write;

/// What people want, and the commands for it, the first ones first. What stands in none is listed at the end.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Why was memory refused, and what is set badly", &["explain", "doctor"]),
    ("What does this machine do", &["top", "topo", "snapshot", "export", "bench"]),
    (
        "What would a kernel do with my load",
        &["whatif", "record", "replay", "trace", "lab", "verify"],
    ),
    ("Run a program on nearpage", &["run", "proc"]),
    ("More", &[]),
];

/// The program with its commands in groups.
pub(super) fn grouped(program: clap::Command) -> clap::Command {
    let names: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut groups = String::new();
    for (heading, members) in GROUPS {
        let rest = names.iter().filter(|name| !GROUPS.iter().any(|group| group.1.contains(name)));
        let members = if members.is_empty() { rest.copied().collect() } else { members.to_vec() };
        let _ = writeln!(groups, "\n{heading}:");
        for command in members.iter().filter_map(|name| program.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {:width$}  {about}", command.get_name());
        }
    }
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n`nearpage help COMMAND` has more.\n\nOptions:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_listed_once() {
        let program = <super::super::Cli as clap::CommandFactory>::command();
        let names: Vec<String> =
            program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let help = grouped(program).render_help().to_string();
        for name in &names {
            assert_eq!(help.matches(&format!("\n  {name} ")).count(), 1, "{name}\n{help}");
        }
        for name in GROUPS.iter().flat_map(|group| group.1) {
            assert!(names.iter().any(|known| known == name), "no command is called {name}");
        }
    }
}
