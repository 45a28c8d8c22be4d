//! Other settings than the recorded ones, against the formulas as the documents state them: a second,
//! naive implementation, on machines and settings drawn at random.

use serde_json::{Value, json};

use super::{json as run_json, recording, unpacked, write};

struct Zone {
    node: u64,
    kind: usize,
    managed: u64,
}

const KINDS: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];

/// The zones of the capture that is predicted.
fn zones(document: &Value, capture: &str) -> Vec<Zone> {
    let zones = document["captures"][capture]["parsed"]["zones"].as_array().unwrap();
    let zone = |zone: &Value| Zone {
        node: zone["node"].as_u64().unwrap(),
        kind: KINDS.iter().position(|kind| zone["zone"] == *kind).unwrap(),
        managed: zone["managed"].as_u64().unwrap(),
    };
    zones.iter().map(zone).collect()
}

fn batch(managed: u64) -> u64 {
    let quarter = ((managed / 1024).min(256) / 4).max(1);
    let mut power = 1;
    while power * 2 <= quarter + quarter / 2 {
        power *= 2;
    }
    (power - 1).max(1)
}

struct Settings {
    min_free: u64,
    scale: u64,
    ratios: [u64; 5],
    fraction: u64,
}

fn marks(zone: &Zone, all: &[Zone], settings: &Settings, is_old: bool) -> [u64; 4] {
    let shares = |zone: &&Zone| is_old || zone.kind != 3;
    let total: u64 = all.iter().filter(shares).map(|zone| zone.managed).sum();
    let share = settings.min_free / 4 * zone.managed / total;
    let step = (share / 4).max(zone.managed * settings.scale / 10_000);
    let min = if !is_old && zone.kind == 3 { (zone.managed / 1024).clamp(32, 128) } else { share };
    [min, min + step, min + 2 * step, min + 3 * step]
}

fn protection(zone: &Zone, all: &[Zone], settings: &Settings) -> Vec<u64> {
    let above = |kind: usize| {
        let counts =
            |other: &&Zone| other.node == zone.node && other.kind > zone.kind && other.kind <= kind;
        all.iter().filter(counts).map(|zone| zone.managed).sum::<u64>()
    };
    let ratio = settings.ratios[zone.kind];
    let is_kept = |kind: usize| kind > zone.kind && ratio > 0 && zone.managed > 0;
    (0..5).map(|kind| if is_kept(kind) { above(kind) / ratio } else { 0 }).collect()
}

fn expected(zone: &Zone, all: &[Zone], settings: &Settings, is_old: bool, cpus: [u64; 2]) -> Value {
    let [min, low, high, promo] = marks(zone, all, settings, is_old);
    let [of_node, online] = cpus;
    let by = if of_node == 0 { online } else { of_node };
    let batch = batch(zone.managed);
    let size = |pages: u64| (pages / by).max(4 * batch);
    let fixed = |fraction| size(zone.managed / fraction);
    let (least, most) = match settings.fraction {
        0 => (size(low), fixed(8)),
        fraction => (fixed(fraction), fixed(fraction)),
    };
    let is_there = zone.managed > 0;
    let of_there = |value: u64| if is_there { json!(value) } else { Value::Null };
    let bits = |value: u64| u64::from(u64::BITS - value.leading_zeros());
    let threshold = (2 * bits(online) * (1 + bits(zone.managed >> 15))).min(125);
    json!({
        "node": zone.node, "zone": KINDS[zone.kind], "boost": 0,
        "min": min, "low": low, "high": high, "promo": if is_old { Value::Null } else { json!(promo) },
        "protection": protection(zone, all, settings),
        "batch": of_there(batch), "high_min": of_there(least),
        "high_max": of_there(if is_old { least } else { most }),
        "stat_threshold": of_there(threshold),
    })
}

fn random_settings(random: &mut fastrand::Rng) -> Settings {
    Settings {
        min_free: random.u64(128..1 << 20),
        scale: random.u64(1..=3000),
        ratios: std::array::from_fn(|_| if random.u8(..4) == 0 { 0 } else { random.u64(1..600) }),
        fraction: if random.bool() { 0 } else { random.u64(8..500) },
    }
}

/// Gives the zones of a recording other sizes; returns how many CPUs are online.
fn mutate(document: &mut Value, capture: &str, random: &mut fastrand::Rng) {
    let zones = document["captures"][capture]["parsed"]["zones"].as_array_mut().unwrap();
    for zone in zones.iter_mut().filter(|zone| zone["managed"] != 0) {
        let bits = random.u32(1..34);
        let managed = random.u64(1..1 << bits);
        zone["managed"] = json!(managed);
        zone["present"] = json!(managed + random.u64(..9999));
        zone["spanned"] = json!(managed + 9999);
    }
}

fn check(name: &str, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let capture = "restored";
    let mut document = unpacked(&recording(name));
    mutate(&mut document, capture, &mut random);
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "mutated.json", &document);
    let settings = random_settings(&mut random);
    let ratios = settings.ratios.map(|ratio| ratio.to_string()).join(" ");
    let set = [
        format!("vm.min_free_kbytes={}", settings.min_free),
        format!("vm.watermark_scale_factor={}", settings.scale),
        format!("vm.lowmem_reserve_ratio={ratios}"),
        format!("vm.percpu_pagelist_high_fraction={}", settings.fraction),
    ];
    let mut arguments = vec!["topo", "--bundle", &path, "--format", "json"];
    set.iter().for_each(|set| arguments.extend(["--set", set]));
    let predicted = run_json(&arguments);
    assert_eq!(predicted["min_free_kbytes"], settings.min_free);
    let zones = zones(&document, capture);
    let listed = |node: u64| document["sys"][format!("node{node}")]["cpulist"].as_str().unwrap();
    let count = |list: &str| {
        let ids = nearpage_machine::idlist::parse(list).unwrap();
        ids.len() as u64
    };
    let online = count(document["sys"]["cpu_online"].as_str().unwrap());
    let is_old = name.ends_with("-6.1");
    for (zone, predicted) in zones.iter().zip(predicted["zones"].as_array().unwrap()) {
        let cpus = [count(listed(zone.node)), online];
        let expected = expected(zone, &zones, &settings, is_old, cpus);
        assert_eq!(*predicted, expected, "{name}, seed {seed}, {set:?}");
    }
}

#[test]
fn sizes_and_settings_at_random() {
    let names = [
        "n1-movablecore512-6.1",
        "n1-movablecore512-6.12",
        "n2-kernelcore1g-6.12",
        "n4-cxl2-6.1",
        "n4-cxl2-6.12",
        "n4-memless13-6.12",
        "n8-2cpunodes-6.12",
        "fake8-2g-6.12",
        "n2-8g-4c-6.1",
    ];
    for name in names {
        for seed in 0..6 {
            check(name, seed);
        }
    }
}
