//! Screens as text, of machines of every size on terminals of every size.

use nearpage_top::{Shown, View};
use nearpage_watch::{NodeSample, PagesetSample, Sample, ZoneSample};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn machine(nodes: u32, cpus: u32) -> Sample {
    let zone = |node| ZoneSample {
        node,
        zone: "Normal".into(),
        free: Some(if node == 1 { 900 } else { 500_000 }),
        boost: Some(0),
        min: Some(1000),
        low: Some(1250),
        high: Some(1500),
        managed: Some(1_000_000),
        pageset_pages: Some(77),
        pagesets: (0..cpus).map(|cpu| PagesetSample { cpu, count: 1, high: 2, batch: 3 }).collect(),
        blocks: vec![4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 120],
        ..ZoneSample::default()
    };
    let node = |node| NodeSample {
        node,
        total: Some(4 << 20),
        free: Some(2 << 20),
        distances: (0..nodes).map(|other| if other == node { 10 } else { 20 }).collect(),
        numa: vec![("numa_hit", 1000 * u64::from(node)), ("numa_foreign", 0)],
        ..NodeSample::default()
    };
    Sample {
        time_ms: 5000,
        nodes: (0..nodes).map(node).collect(),
        zones: (0..nodes).map(zone).collect(),
        events: vec![("allocstall_normal", 3), ("pgfault", 1_000_000)],
        ..Sample::default()
    }
}

fn screen(view: &View, shown: &Shown<'_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, shown)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn pressed(keys: &str) -> View {
    let mut view = View::default();
    keys.chars().for_each(|key| view.press(key));
    view
}

#[test]
fn zones_at_80_by_24() {
    let now = machine(2, 2);
    let before = Sample {
        time_ms: 4000,
        zones: vec![ZoneSample { free: Some(510_000), ..now.zones[0].clone() }],
        ..machine(2, 2)
    };
    let shown = Shown::new("a box", Some(&before), &now);
    let lines = screen(&pressed("2"), &shown, 80, 24);
    assert_eq!(lines[0], " 1 nodes [2 zones] 3 blocks  4 pagesets  5 events   ? keys  a box");
    assert_eq!(
        lines[1],
        "node zone         free       min  boost  cached min|low|high    pages/s gives"
    );
    assert_eq!(
        lines[2],
        "   0 Normal     500000      1000      0      77 ====||=|======   -10000 0 3 9"
    );
    assert_eq!(lines[3].split_whitespace().last(), Some("nothing"));
    // Below low: the gauge ends before the second mark.
    assert_eq!(gauge(&lines[3]), "====||");
    assert_eq!(
        lines[23],
        "! refusing node 1 Normal: 900 pages free, min 1000: only urgent requests get any"
    );
}

fn gauge(line: &str) -> String {
    line.split_whitespace().nth(6).unwrap_or_default().to_owned()
}

#[test]
fn every_pane_fits_every_terminal() {
    let large = machine(64, 16);
    let small = machine(1, 1);
    let empty = Sample::default();
    for now in [&large, &small, &empty] {
        for pane in ["1", "2", "3", "4", "5", "1?"] {
            for (width, height) in
                [(200, 60), (80, 24), (20, 4), (3, 2), (1, 1), (1000, 1), (1, 300)]
            {
                let shown = Shown::new("x", None, now);
                assert_eq!(
                    screen(&pressed(pane), &shown, width, height).len(),
                    usize::from(height)
                );
            }
        }
    }
    let lines = screen(&pressed("4"), &Shown::new("x", None, &large), 80, 24);
    assert!(lines.iter().any(|line| line == "and 1004 more below"), "{lines:#?}");
    let lines = screen(&pressed("3"), &Shown::new("x", None, &empty), 80, 24);
    assert_eq!(lines[2], "the kernel, or the copy, does not tell");
}

#[test]
fn scrolling_stops_at_the_last_row() {
    let now = machine(64, 1);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed("2");
    (0..100).for_each(|_| view.scroll_down());
    let lines = screen(&view, &shown, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("  63 Normal")), "{lines:#?}");
}

#[test]
fn what_a_copy_says_does_not_command_the_terminal() {
    let mut now = machine(1, 1);
    now.zones[0].zone = "\u{1b}[2J".into();
    let lines = screen(&pressed("2"), &Shown::new("\u{7}box", None, &now), 80, 24);
    assert!(lines[0].ends_with("?box") && lines[2].contains("?[2J"), "{lines:#?}");
}
