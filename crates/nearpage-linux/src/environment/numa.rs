//! `NEARPAGE_NUMA`: items with commas between them.

use std::num::NonZeroU16;

use super::asked::{Environment, Nodes};
use super::misread::{misread_value, nearest};
use super::names::NUMA;
use crate::bind::BindMode;
use crate::warning::VariableWarning;

/// Most shares that a machine is split into: as many nodes as Linux can be built for
/// (`NODES_SHIFT` of 10).
const SHARES_MAX: u16 = 1024;

/// What an item starts with, and what it looks like.
const ITEMS: [(&str, &str); 7] = [
    ("off", "off"),
    ("fake", "fake=N"),
    ("topology", "topology=PATH"),
    ("bind", "bind=MODE"),
    ("strict", "strict"),
    ("advisory", "advisory"),
    ("no-binding", "no-binding"),
];
const EXPECTED_ITEM: &str = "off, fake=N, topology=PATH, bind=strict, bind=advisory, bind=none, \
                             strict, advisory or no-binding";
const EXPECTED_SHARES: &str = "fake=N with N from 1 to 1024 nodes";
const EXPECTED_MODE: &str = "bind=strict, bind=advisory or bind=none";
const EXPECTED_NODES_ONCE: &str = "only one of off, fake=N and topology=PATH";
const EXPECTED_MODE_ONCE: &str = "only one way to bind";
const EXPECTED_NO_BINDING: &str = "no binding beside off, fake=N or topology=PATH: the kernel does \
                                   not know emulated nodes";

/// What an item says.
enum Item {
    Nodes(Nodes),
    Bind(BindMode),
}

/// Reads the items. One that contradicts an earlier one is ignored.
pub(super) fn parse(value: &str, environment: &mut Environment) {
    let (mut nodes, mut bind) = (None, None);
    for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let added = parse_item(item).and_then(|parsed| match parsed {
            Item::Nodes(said) => set_once(&mut nodes, item, said, EXPECTED_NODES_ONCE),
            Item::Bind(said) => set_once(&mut bind, item, said, EXPECTED_MODE_ONCE),
        });
        environment.ignored.extend(added.err());
    }
    if let (Some(_), Some((item, BindMode::Strict | BindMode::Advisory))) = (&nodes, bind) {
        environment.ignored.push(misread_value(NUMA, item, EXPECTED_NO_BINDING));
        bind = None;
    }
    environment.nodes = nodes.map_or(Nodes::Kernel, |(_, said)| said);
    environment.bind = bind.map(|(_, said)| said);
}

/// Keeps what an item said, and the item.
fn set_once<'a, T: PartialEq>(
    slot: &mut Option<(&'a str, T)>,
    item: &'a str,
    said: T,
    expected: &'static str,
) -> Result<(), VariableWarning> {
    match slot {
        Some((_, before)) if *before != said => Err(misread_value(NUMA, item, expected)),
        _ => {
            *slot = Some((item, said));
            Ok(())
        }
    }
}

fn parse_item(item: &str) -> Result<Item, VariableWarning> {
    let one = Nodes::Shares(NonZeroU16::MIN);
    match item.split_once('=') {
        None if item == "off" => Ok(Item::Nodes(one)),
        None if item == "strict" => Ok(Item::Bind(BindMode::Strict)),
        None if item == "advisory" => Ok(Item::Bind(BindMode::Advisory)),
        None if item == "no-binding" => Ok(Item::Bind(BindMode::None)),
        Some(("fake", count)) => parse_shares(item, count).map(Item::Nodes),
        Some(("topology", path)) if !path.is_empty() => Ok(Item::Nodes(Nodes::File(path.into()))),
        Some(("bind", mode)) => parse_mode(item, mode).map(Item::Bind),
        key_and_value => {
            let word = key_and_value.map_or(item, |(key, _)| key);
            let warning = misread_value(NUMA, item, EXPECTED_ITEM);
            Err(VariableWarning { nearest: nearest(word, ITEMS), ..warning })
        }
    }
}

fn parse_shares(item: &str, count: &str) -> Result<Nodes, VariableWarning> {
    match count.parse::<NonZeroU16>() {
        Ok(count) if count.get() <= SHARES_MAX => Ok(Nodes::Shares(count)),
        _ => Err(misread_value(NUMA, item, EXPECTED_SHARES)),
    }
}

fn parse_mode(item: &str, name: &str) -> Result<BindMode, VariableWarning> {
    let named = BindMode::NAMES.into_iter().find(|(known, _)| *known == name);
    named.map(|(_, mode)| mode).ok_or_else(|| {
        let warning = misread_value(NUMA, item, EXPECTED_MODE);
        VariableWarning {
            nearest: nearest(name, BindMode::NAMES.map(|(known, _)| (known, known))),
            ..warning
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `value` sets, and the warnings.
    fn parse(value: &str) -> (Nodes, Option<BindMode>, Vec<String>) {
        let mut environment = Environment::default();
        super::parse(value, &mut environment);
        let warnings = environment.ignored.iter().map(ToString::to_string).collect();
        (environment.nodes, environment.bind, warnings)
    }

    fn shares(count: u16) -> Nodes {
        Nodes::Shares(NonZeroU16::new(count).unwrap())
    }

    /// The only warning of a value that sets nothing.
    fn warning(value: &str) -> String {
        let (nodes, bind, warnings) = parse(value);
        assert_eq!((nodes, bind), (Nodes::Kernel, None), "{value}");
        let [warning] = &warnings[..] else { panic!("{value}: {warnings:?}") };
        warning.clone()
    }

    #[test]
    fn items() {
        assert_eq!(parse("off"), (shares(1), None, vec![]));
        assert_eq!(parse("fake=4"), (shares(4), None, vec![]));
        assert_eq!(parse("fake=1024"), (shares(1024), None, vec![]));
        let lab = Nodes::File("/tmp/a=b.numa".into());
        assert_eq!(parse("topology=/tmp/a=b.numa"), (lab, None, vec![]));
        let bound = |mode| (Nodes::Kernel, Some(mode), vec![]);
        assert_eq!(parse("strict"), bound(BindMode::Strict));
        assert_eq!(parse("advisory"), bound(BindMode::Advisory));
        assert_eq!(parse("no-binding"), bound(BindMode::None));
        for (name, mode) in BindMode::NAMES {
            assert_eq!(parse(&format!("bind={name}")), bound(mode));
            assert!(EXPECTED_MODE.contains(&format!("bind={name}")));
        }
    }

    #[test]
    fn several_items() {
        assert_eq!(parse("fake=2,no-binding"), (shares(2), Some(BindMode::None), vec![]));
        assert_eq!(parse(" bind=none , fake=2 ,, "), (shares(2), Some(BindMode::None), vec![]));
        let strict = (Nodes::Kernel, Some(BindMode::Strict), vec![]);
        assert_eq!(parse("strict,bind=strict"), strict);
    }

    #[test]
    fn unknown_items() {
        assert_eq!(
            warning("fak=4"),
            "NEARPAGE_NUMA: found \"fak=4\" (did you mean fake=N?), expected off, fake=N, \
             topology=PATH, bind=strict, bind=advisory, bind=none, strict, advisory or no-binding"
        );
        for (value, nearest) in [
            ("fake", "fake=N"),
            ("topo=lab.numa", "topology=PATH"),
            ("topology=", "topology=PATH"),
            ("STRICT", "strict"),
            ("strict-binding", "strict"),
            ("advisory-binding", "advisory"),
            ("no_binding", "no-binding"),
            ("bnid=none", "bind=MODE"),
            ("off=1", "off"),
        ] {
            let start = format!("NEARPAGE_NUMA: found {value:?} (did you mean {nearest}?), ");
            assert!(warning(value).starts_with(&start), "{}", warning(value));
        }
        assert!(warning("2").starts_with("NEARPAGE_NUMA: found \"2\", expected off, "));
    }

    #[test]
    fn bad_numbers_and_modes() {
        for value in ["fake=0", "fake=1025", "fake=99999", "fake=512M", "fake=", "fake=-1"] {
            let expected = "expected fake=N with N from 1 to 1024 nodes";
            assert_eq!(warning(value), format!("NEARPAGE_NUMA: found {value:?}, {expected}"));
        }
        assert_eq!(
            warning("bind=stict"),
            "NEARPAGE_NUMA: found \"bind=stict\" (did you mean strict?), \
             expected bind=strict, bind=advisory or bind=none"
        );
        assert_eq!(
            warning("bind=2"),
            "NEARPAGE_NUMA: found \"bind=2\", expected bind=strict, bind=advisory or bind=none"
        );
    }

    #[test]
    fn contradictions() {
        assert_eq!(
            parse("fake=2,topology=lab.numa"),
            (
                shares(2),
                None,
                vec![
                    "NEARPAGE_NUMA: found \"topology=lab.numa\", \
                     expected only one of off, fake=N and topology=PATH"
                        .into()
                ]
            )
        );
        assert_eq!(
            parse("advisory,bind=strict"),
            (
                Nodes::Kernel,
                Some(BindMode::Advisory),
                vec!["NEARPAGE_NUMA: found \"bind=strict\", expected only one way to bind".into()]
            )
        );
        for (value, item, count) in
            [("strict,fake=2", "strict", 2), ("off,bind=advisory", "bind=advisory", 1)]
        {
            let warning = format!(
                "NEARPAGE_NUMA: found \"{item}\", expected no binding beside off, fake=N or \
                 topology=PATH: the kernel does not know emulated nodes"
            );
            assert_eq!(parse(value), (shares(count), None, vec![warning]));
        }
    }
}
