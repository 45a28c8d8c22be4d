//! What a refresh costs: a sample, its marks, and a screen. Times mean something on a quiet machine only.
//!
//! ```sh
//! cargo run --release -p nearpage-top --example cost
//! ```

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nearpage_machine::FolderTree;
use nearpage_top::{Past, Shown, View};
use nearpage_watch::{Pagesets, Sample, Sampler, marks};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const NODES: u32 = 64;
const CPUS: u32 = 1024;
const PROCESSES: u32 = 3000;
const REFRESHES: u32 = 300;

/// The files of a machine with 64 nodes, 1024 CPUs and 3000 processes.
fn write_machine(root: &Path) {
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let (mut zoneinfo, mut buddyinfo) = (String::new(), String::new());
    for node in 0..NODES {
        let zones = if node == 0 { &["DMA", "DMA32", "Normal"][..] } else { &["Normal"][..] };
        for zone in zones {
            let _ = write!(
                zoneinfo,
                "Node {node}, zone {zone:>8}\n  per-node stats\n      nr_inactive_anon 41231\n      \
                 nr_active_anon 912\n      nr_inactive_file 1\n  pages free     3217848\n        boost    0\n        \
                 min      14769\n        low      20163\n        high     25557\n        promo    30951\n        \
                 spanned  5767168\n        present  5767168\n        managed  5394266\n        cma      0\n        \
                 protection: (0, 0, 0, 0, 0)\n      nr_free_pages 3217848\n      numa_hit     499410092\n      \
                 numa_miss    0\n      numa_foreign 0\n  pagesets\n"
            );
            for cpu in 0..CPUS {
                let _ = write!(
                    zoneinfo,
                    "    cpu: {cpu}\n              count:    {}\n              high:     1728\n              \
                     batch:    63\n              high_min: 1728\n              high_max: 10787\n  \
                     vm stats threshold: 125\n",
                    cpu * 7 % 1728
                );
            }
            zoneinfo += "  node_unreclaimable:  0\n  start_pfn:           1048576\n";
            let _ = writeln!(
                buddyinfo,
                "Node {node}, zone {zone:>8}   1099  17000   7402   2294    609  16000  12000   5208   1713    171    438 "
            );
        }
        let folder = format!("sys/devices/system/node/node{node}");
        let mut meminfo = String::new();
        for name in [
            "MemTotal",
            "MemFree",
            "MemUsed",
            "FilePages",
            "AnonPages",
            "Shmem",
            "Slab",
            "AnonHugePages",
        ] {
            let _ = writeln!(meminfo, "Node {node} {name}:       21577064 kB");
        }
        write(&format!("{folder}/meminfo"), &meminfo);
        let counters =
            ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];
        let numastat: String = counters.map(|name| format!("{name} 499410092\n")).concat();
        write(&format!("{folder}/numastat"), &numastat);
        let distances: String =
            (0..NODES).map(|other| if other == node { "10 " } else { "32 " }).collect();
        write(&format!("{folder}/distance"), &distances);
        let cpus = CPUS / NODES;
        write(
            &format!("{folder}/cpulist"),
            &format!("{}-{}\n", node * cpus, (node + 1) * cpus - 1),
        );
    }
    write("proc/zoneinfo", &zoneinfo);
    write("proc/buddyinfo", &buddyinfo);
    let vmstat: String = nearpage_watch::EVENTS.map(|name| format!("{name} 123456\n")).concat();
    write("proc/vmstat", &vmstat);
    let maps: String = (0..40)
        .map(|at| {
            format!("7f{at:010x} default anon=200 N{}=150 N1=50 kernelpagesize_kB=4\n", at % NODES)
        })
        .collect();
    for pid in 1..=PROCESSES {
        let stat = format!(
            "{pid} (p{pid}) S 1 1 1 0 -1 0 {} 0 0 0 5 6 0 0 20 0 1 0 {pid} 9000 {} 1 1 1 0 0 0 0 0 0 0 0 0 0 17 {} 0",
            pid * 3,
            pid * 10,
            pid % CPUS
        );
        write(&format!("proc/{pid}/stat"), &stat);
        write(&format!("proc/{pid}/numa_maps"), &maps);
        write(&format!("proc/{pid}/status"), "Uid:\t0\nMems_allowed_list:\t0-63\n");
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Mean of CPU time, and the longest refresh by the clock.
fn measure(mut sampler: Sampler, pane: char) -> (Duration, Duration) {
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    let (mut view, mut past, mut before) = (View::default(), Past::default(), None::<Sample>);
    let (mut longest, begin) = (Duration::ZERO, cpu_time());
    view.press(pane);
    for _ in 0..REFRESHES {
        let at = Instant::now();
        let now = sampler.sample();
        past.follow(&now, &marks(before.as_ref(), &now));
        let shown = Shown::new("synthetic", before.as_ref(), &now).with_past(&past);
        terminal.draw(|frame| view.draw(frame, &shown)).unwrap();
        before = Some(now);
        longest = longest.max(at.elapsed());
    }
    ((cpu_time() - begin) / REFRESHES, longest)
}

fn report(name: &str, mean: Duration, longest: Duration) {
    println!(
        "{name:<44} {:>8.2} ms of CPU a refresh, the longest {:>7.2} ms",
        mean.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3
    );
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    write_machine(folder.path());
    let tree = || Box::new(FolderTree::new(folder.path()));
    // As `nearpage top` has them.
    let zoneinfo = Duration::from_micros(1500);
    let processes = Duration::from_millis(3);
    for pane in ['1', '2', '3', '4', '5', '6'] {
        let sampler = Sampler::new(tree()).with_budget(zoneinfo).with_pagesets(Pagesets::EachCpu);
        let (mean, longest) = measure(sampler, pane);
        report(&format!("64 nodes, 1024 CPUs, pane {pane}"), mean, longest);
        assert!(
            cfg!(debug_assertions) || mean < Duration::from_millis(10),
            "far above what it was"
        );
    }
    let sampler = Sampler::new(tree())
        .with_budget(zoneinfo)
        .with_pagesets(Pagesets::EachCpu)
        .with_processes(1000, Some(processes));
    let (mean, longest) = measure(sampler, '5');
    report("the same, and 3000 processes, pane 5", mean, longest);
    let sampler = Sampler::new(Box::new(FolderTree::new("/")))
        .with_budget(zoneinfo)
        .with_pagesets(Pagesets::EachCpu)
        .with_processes(1000, Some(processes));
    let (mean, longest) = measure(sampler, '5');
    report("this machine and its processes, pane 5", mean, longest);
}
