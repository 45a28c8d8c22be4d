//! QEMU's arguments for a topology.

use std::path::{Path, PathBuf};

use super::Architecture;
use super::topology::Topology;

/// What every boot is told: no random places, a log that keeps all, and nothing that moves pages.
const COMMAND_LINE: &str = "panic=-1 nokaslr log_buf_len=1M numa_balancing=disable init_on_alloc=0";

/// What the machine reads and writes on this side.
pub struct Files {
    /// The kernel.
    pub kernel: PathBuf,
    /// The root of its files.
    pub initramfs: PathBuf,
    /// What it prints.
    pub console: PathBuf,
    /// What it sends.
    pub output: PathBuf,
}

impl Files {
    /// Files in a folder of their own.
    pub fn in_folder(folder: &Path, kernel: PathBuf) -> Files {
        let [initramfs, console, output] =
            ["initramfs", "console", "output"].map(|name| folder.join(name));
        Files { kernel, initramfs, console, output }
    }
}

/// The arguments.
pub fn arguments(topology: &Topology, architecture: Architecture, files: &Files) -> Vec<String> {
    let cpus: u32 = topology.nodes.iter().map(|node| node.cpus).sum();
    let memory: u32 = topology.nodes.iter().map(|node| node.mem).sum();
    let mut arguments: Vec<String> = [
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        architecture.cpu(),
        "-machine",
        topology.machine.unwrap_or(architecture.board()).name(),
        "-display",
        "none",
        "-nodefaults",
        "-no-reboot",
        "-net",
        "none",
    ]
    .map(String::from)
    .to_vec();
    let mut add = |name: &str, value: String| arguments.extend([name.into(), value]);
    add("-m", format!("{memory}M"));
    add("-smp", topology.smp.clone().unwrap_or_else(|| cpus.to_string()));
    add_nodes(topology, &mut add);
    add("-kernel", files.kernel.display().to_string());
    add("-initrd", files.initramfs.display().to_string());
    add("-append", command_line(topology, architecture));
    for (id, file) in [("c0", &files.console), ("c1", &files.output)] {
        add("-chardev", format!("file,id={id},path={}", file.display()));
    }
    add("-serial", "chardev:c0".into());
    add(architecture.port_argument(), architecture.port_value("c1"));
    arguments
}

/// All that the kernel is told.
pub fn command_line(topology: &Topology, architecture: Architecture) -> String {
    let console = architecture.console();
    format!("console={console} {COMMAND_LINE} {}", topology.command_line).trim_end().into()
}

fn add_nodes(topology: &Topology, add: &mut impl FnMut(&str, String)) {
    let mut next = 0;
    for (id, node) in topology.nodes.iter().enumerate() {
        let mut words = format!("node,nodeid={id}");
        if node.cpus > 0 {
            words += &format!(",cpus={next}-{}", next + node.cpus - 1);
            next += node.cpus;
        }
        if node.mem > 0 {
            add("-object", format!("memory-backend-ram,id=m{id},size={}M", node.mem));
            words += &format!(",memdev=m{id}");
        }
        add("-numa", words);
    }
    let rows = topology.distances.iter().flatten().enumerate();
    for (from, row) in rows {
        for (to, distance) in row.iter().enumerate() {
            add("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
    }
}

/// The arguments as the recording keeps them: names of files without the folders of this machine.
pub fn arguments_to_keep(
    topology: &Topology,
    architecture: Architecture,
    files: &Files,
) -> Vec<String> {
    let name = |path: &Path| PathBuf::from(path.file_name().unwrap_or_default());
    let files = Files {
        kernel: name(&files.kernel),
        initramfs: name(&files.initramfs),
        console: name(&files.console),
        output: name(&files.output),
    };
    let emulator = architecture.emulator().into();
    [emulator].into_iter().chain(arguments(topology, architecture, &files)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_become_arguments() {
        let topology = Topology::parse(
            r#"{"nodes": [{"mem": 512, "cpus": 2}, {"mem": 0, "cpus": 1}, {"mem": 64, "cpus": 0}],
                "distances": [[10, 20, 30], [20, 10, 40], [30, 40, 10]], "cmdline": "x=1"}"#,
        )
        .unwrap();
        let files = Files::in_folder(Path::new("/tmp/x"), "/boot/vmlinuz-6.1".into());
        let x86 = Architecture::X86_64;
        let kept = arguments_to_keep(&topology, x86, &files).join(" ");
        assert!(kept.contains("-m 576M -smp 3 "), "{kept}");
        assert!(
            kept.contains("-numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-2 ")
        );
        assert!(kept.contains("-numa node,nodeid=2,memdev=m2 -numa dist,src=0,dst=0,val=10 "));
        assert!(kept.contains("-kernel vmlinuz-6.1 -initrd initramfs "), "{kept}");
        assert!(kept.contains(" init_on_alloc=0 x=1 "));
        assert!(!kept.contains("/tmp"));
        let other =
            r#"{"nodes": [{"mem": 64, "cpus": 4}], "machine": "q35", "smp": "4,sockets=2"}"#;
        let kept = arguments_to_keep(&Topology::parse(other).unwrap(), x86, &files).join(" ");
        assert!(kept.contains("-machine q35 ") && kept.contains("-smp 4,sockets=2 "), "{kept}");
        let kept = arguments_to_keep(&topology, Architecture::Aarch64, &files).join(" ");
        assert!(kept.starts_with("qemu-system-aarch64 ") && kept.contains("-machine virt "));
        assert!(
            kept.contains(" console=ttyAMA0 ") && kept.ends_with("-device pci-serial,chardev=c1")
        );
    }
}
