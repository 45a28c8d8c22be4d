use proptest::prelude::*;

use super::*;
use crate::{MachineDescription, text};

/// Written by `lstopo-no-graphics --of xml` (hwloc 2.9.0) in a QEMU guest with three nodes, of which node 2 has no
/// CPUs, without the lines that name the host; and the same in the format of version 1.
const THREE_NODES: &str = include_str!("data/three-nodes.xml");
const THREE_NODES_V1: &str = include_str!("data/three-nodes-v1.xml");

fn read(text: &str) -> Result<Machine, String> {
    match MachineDescription::from_reader("box", text.as_bytes(), &crate::Budget::DEFAULT) {
        Ok(description) => Ok(description.machine),
        Err(error) => Err(error.to_string()),
    }
}

fn cpus(ids: &[u32]) -> Vec<CpuId> {
    ids.iter().copied().map(CpuId).collect()
}

#[test]
fn real_documents_of_all_versions_are_read() {
    // The newest tree of hwloc writes 3.0 above what it wrote before.
    let newest = THREE_NODES.replacen("version=\"2.0\"", "version=\"3.0\"", 1);
    assert_ne!(newest, THREE_NODES);
    for (version, text) in [(3, &*newest), (2, THREE_NODES), (1, THREE_NODES_V1)] {
        let machine = read(text).unwrap();
        // What the guest printed of itself.
        assert_eq!(machine.distances, [10, 21, 30, 21, 10, 40, 30, 40, 10], "{version}");
        let kibibytes = machine.nodes.iter().map(|node| node.memory_bytes.unwrap() >> 10);
        assert_eq!(kibibytes.collect::<Vec<_>>(), [346_848, 386_108, 255_636], "{version}");
        let of_nodes = machine.nodes.iter().map(|node| node.cpus.clone());
        let expected = [cpus(&[0, 1, 2]), cpus(&[3, 4, 5]), cpus(&[])];
        assert_eq!(of_nodes.collect::<Vec<_>>(), expected, "{version}");
        assert_eq!(machine.page_bytes, 4096);
        let caches: Vec<(u64, usize)> = machine
            .last_level_caches
            .iter()
            .map(|cache| (cache.bytes >> 20, cache.cpus.len()))
            .collect();
        assert_eq!(caches, [(16, 3), (16, 3)], "{version}");
        assert_eq!(machine.notes, []);
    }
}

#[test]
fn what_is_written_is_read_again() {
    for text in [THREE_NODES, THREE_NODES_V1] {
        let machine = read(text).unwrap();
        assert_eq!(read(&text::hwloc(&machine).to_string()).unwrap(), machine);
    }
    for form in [
        "--numa 2G,cpus=0-1",
        "--numa 2G,cpus=4-5 --numa 2G,cpus=0,6 --numa 2G,cpus=1-3",
        "--numa 512M --numa 2G,cpus=0-39,70 --numa 0,cpus=40 --numa-distance 0,1=17 --numa-distance 1,0=18",
    ] {
        let machine = read(form).unwrap();
        assert_eq!(read(&text::hwloc(&machine).to_string()).unwrap(), machine);
    }
}

#[test]
fn what_is_missing_is_assumed() {
    let machine = read(
        "<topology version='2.0'><object type='Machine' cpuset='0x3' complete_cpuset='0x00000001,,0x3'>\n\
         <object type='NUMANode' os_index='4' cpuset='0x1' local_memory='8192000'/>\n\
         <object type='NUMANode' os_index='7' cpuset='0x3'/></object></topology>",
    );
    let machine = machine.unwrap();
    assert_eq!(machine.distances, [10, 20, 20, 10]);
    assert_eq!(machine.nodes[1].cpus, [CpuId(1)]);
    assert_eq!(machine.nodes[1].memory_bytes, Some(0));
    assert_eq!(machine.possible_cpus, cpus(&[0, 1, 64]));
    assert_eq!(machine.notes, [Note::DistancesAssumed { nodes: vec![4, 7] }]);
    let single = read(
        "<topology><object type='Machine' os_index='0' cpuset='0xf' local_memory='8192000'>\n\
         <page_type size='65536' count='125'/></object></topology>",
    );
    let single = single.unwrap();
    assert_eq!(single.nodes[0].cpus, cpus(&[0, 1, 2, 3]));
    assert_eq!((single.page_bytes, single.nodes[0].memory_bytes), (65_536, Some(8_192_000)));
}

fn with(objects: &str, rest: &str) -> Result<Machine, String> {
    read(&format!(
        "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n<object type=\"Machine\" cpuset=\"0x3\">\n\
         {objects}\n</object>\n{rest}\n</topology>\n"
    ))
}

#[test]
fn mistakes_are_named_with_their_line() {
    let node = |rest: &str| format!("<object type=\"NUMANode\" os_index=\"1\" {rest}/>");
    let distances = "<distances2 type=\"NUMANode\" kind=\"5\"><indexes>0 1</indexes>\
                     <u64values>10 20 20</u64values></distances2>";
    for (objects, rest, expected) in [
        (
            node("cpuset=\"0xg\""),
            "",
            "box:4: found \"0xg\", expected a set such as 0x00000001,0x0000000f as cpuset",
        ),
        (
            node("local_memory=\"-1\""),
            "",
            "box:4: found \"-1\", expected a whole number as local_memory",
        ),
        (
            "<object type=\"NUMANode\"/>".into(),
            "",
            "box:4: found \"<object type=\\\"NUMANode\\\">\", expected its os_index",
        ),
        (
            node("") + "\n" + &node(""),
            "",
            "box:5: the size of node 1 is given again, expected it once",
        ),
        (
            node("").replace('1', "0") + &node(""),
            distances,
            "box:6: found \"3 distances\", expected one from each of 2 nodes to each",
        ),
        (
            node("").replace('1', "3") + &node(""),
            distances,
            "box:6: found \"0\", expected the index of a NUMANode",
        ),
        (
            node("") + "<page_type size=\"5000\"/>",
            "",
            "box:4: found \"5000\", expected a power of two from 4096 up as size",
        ),
        (
            "<object>".into(),
            "",
            "box:7:1: expected 'object' tag, not 'topology', expected the XML that `lstopo --of xml` writes",
        ),
    ] {
        assert_eq!(with(&objects, rest).unwrap_err(), expected, "{objects}");
    }
    assert_eq!(
        read("<?xml version=\"1.0\"?>\n<svg/>").unwrap_err(),
        format!("box:2: found \"svg\", expected {EXPECTED}")
    );
    assert_eq!(
        read("<topology version=\"9.0\"><object type=\"Machine\"/></topology>").unwrap_err(),
        "box:1: found \"version 9.0\", expected version 1, 2 or 3 of hwloc's XML"
    );
    assert!(read("<topology").unwrap_err().starts_with("box:1:"));
    assert!(read("<topology/>").unwrap_err().starts_with("box: describes no node"));
    let wide = format!("cpuset=\"{}0x1\"", "0x0,".repeat(SET_WORDS_MAX));
    assert!(with(&node(&wide), "").unwrap_err().starts_with("box:4: found \"0x0\""));
    let bomb = "<!DOCTYPE t [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \
                \"&b;&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;\">]><topology>&d;&d;&d;</topology>";
    assert!(read(bomb).is_err());
    // Compared each with all others, as many took hours.
    let attributes: String = (0..200_000).map(|at| format!(" a{at} = '>'")).collect();
    let refused = read(&format!("<topology>\n<object{attributes}/></topology>")).unwrap_err();
    assert!(refused.starts_with("box:2: an element has more than 256 attributes"), "{refused}");
    let deep = "<object>".repeat(200_000);
    assert!(read(&format!("<topology>{deep}")).is_err());
}

proptest! {
    #[test]
    fn cut_and_changed_documents_are_read_or_refused(
        end in 0..THREE_NODES.len(),
        at in 0..THREE_NODES.len(),
        byte in any::<u8>(),
    ) {
        let _ = read(&THREE_NODES[..end]);
        let mut changed = THREE_NODES.as_bytes().to_vec();
        changed[at] = byte;
        let _ = MachineDescription::from_reader("box", changed.as_slice(), &crate::Budget::DEFAULT);
    }
}
