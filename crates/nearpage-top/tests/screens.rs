//! Screens as text, of machines of every size on terminals of every size.

use nearpage_top::{Asked, Pane, Past, Shown, View};
use nearpage_watch::{
    CpuTraffic, NodeSample, PagesetSample, Placement, ProcessSample, Processes, Sample, TypeBlocks,
    WORDS, ZoneSample, marks,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

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
        processes: processes(nodes),
        ..Sample::default()
    }
}

fn processes(nodes: u32) -> Processes {
    let process = |pid: u32, placement| ProcessSample {
        pid,
        name: format!("worker {pid}"),
        uid: Some(1000),
        rss: u64::from(pid) << 10,
        nodes: match placement {
            Placement::Read => (0..nodes).map(|node| (node, u64::from(pid + node) << 9)).collect(),
            _ => Vec::new(),
        },
        placement,
        placed_ago: (placement == Placement::Read).then_some(if pid == 101 { 40 } else { 1 }),
        runs_on: Some(1),
        may_use: "0-1".into(),
        minor_faults: Some(u64::from(200 - pid)),
        major_faults: Some(0),
    };
    Processes {
        list: vec![
            process(103, Placement::Read),
            process(102, Placement::Denied),
            process(101, Placement::Read),
            process(100, Placement::TooLong),
        ],
        seen: 400,
        denied: 1,
        waiting: 1,
    }
}

fn screen(view: &mut View, shown: &Shown<'_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, shown)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn key(view: &mut View, code: KeyCode) -> Asked {
    view.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn mouse(view: &mut View, kind: MouseEventKind, column: u16, row: u16) -> Asked {
    view.handle(&Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }))
}

const CLICK: MouseEventKind = MouseEventKind::Down(MouseButton::Left);

/// A view that was drawn, so that it knows the machine, with keys pressed.
fn pressed_on(shown: &Shown<'_>, keys: &str) -> View {
    let mut view = View::default();
    screen(&mut view, shown, 80, 24);
    for key in keys.chars() {
        view.press(key);
        screen(&mut view, shown, 80, 24);
    }
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
    let lines = screen(&mut pressed_on(&shown, "2"), &shown, 80, 24);
    assert_eq!(
        lines[..4],
        [
            " 1 nodes [2 zones] 3 blocks  4 pagesets  5 processes  6 events ? keys",
            "1970-01-01 00:00:05 UTC  in the kernel's order  a box",
            "node zone         free       min  boost  cached min|low|high    pages/s gives",
            "   0 Normal     500000      1000      0      77 ====||=|======   -10000 0 3 9",
        ]
    );
    assert_eq!(lines[4].split_whitespace().last(), Some("nothing"));
    // Below low: the gauge ends before the second mark.
    assert_eq!(gauge(&lines[4]), "====||");
    assert_eq!(
        lines[23],
        "! refusing node 1 Normal: 900 pages free, min 1000: only urgent requests get any"
    );
    // The tightest first.
    let lines = screen(&mut pressed_on(&shown, "2s"), &shown, 80, 24);
    assert!(lines[3].starts_with("   1 Normal        900"), "{lines:#?}");
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
        for pane in ["1", "2", "3", "4", "5", "6", "1?", "4g", "4gg", "5s", "5ss", "2n", "5n"] {
            let shown = Shown::new("x", None, now);
            let mut view = pressed_on(&shown, pane);
            for (width, height) in [
                (200, 60),
                (80, 24),
                (20, 4),
                (3, 2),
                (1, 1),
                (0, 0),
                (1000, 1),
                (1, 300),
                (80, 24),
            ] {
                let lines = screen(&mut view, &shown, width, height);
                assert_eq!(lines.len(), usize::from(height));
            }
            key(&mut view, KeyCode::Enter);
            for (width, height) in [(200, 60), (20, 4), (1, 1), (0, 0)] {
                screen(&mut view, &shown, width, height);
            }
        }
    }
    let shown = Shown::new("x", None, &empty);
    let lines = screen(&mut pressed_on(&shown, "3"), &shown, 80, 24);
    assert_eq!(lines[3], "the kernel, or the copy, does not tell");
}

#[test]
fn blocks_have_types_where_somebody_may_read_them() {
    let small = machine(1, 1);
    let shown = Shown::new("x", None, &small);
    let mut view = pressed_on(&shown, "3");
    let enter = Event::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    assert_eq!(view.handle(&enter), Asked::Types);
    let zone = small.zones[0].zone.clone();
    let row = |migratetype: &str, count| TypeBlocks {
        node: 0,
        zone: zone.clone(),
        migratetype: migratetype.into(),
        blocks: vec![(count, count == 100_000), (3 * count, false)],
    };
    let types = Ok(vec![row("Movable", 7), row("Unmovable", 0), row("Reclaimable", 100_000)]);
    let past = Past { types: Some((3_600_000, types)), ..Past::default() };
    let lines = screen(&mut view, &shown.clone().with_past(&past), 80, 24).join("\n");
    for part in ["by type, at 01:00:00", "  Movable         7   21", "  Reclaimable  >100k 300k"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert!(!lines.contains("Unmovable"), "{lines}");
    let past = Past { types: Some((0, Err("no permission".into()))), ..Past::default() };
    let lines = screen(&mut view, &shown.clone().with_past(&past), 80, 24).join("\n");
    assert!(lines.contains("by type: no permission"), "{lines}");
    let lines = screen(&mut view, &shown, 80, 24).join("\n");
    assert!(lines.contains("by type: not known of a recording"), "{lines}");
}

#[test]
fn many_pagesets_are_grouped_and_paged() {
    let large = machine(64, 16);
    let shown = Shown::new("x", None, &large);
    let mut view = pressed_on(&shown, "4");
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines[1].contains("by zone"), "{lines:#?}");
    assert_eq!(
        lines[3].split_whitespace().collect::<Vec<_>>()[..6],
        ["0", "Normal", "0", "77", "1", "32"]
    );
    view.press('g');
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines[1].contains("by CPU") && lines[3] == "   0    64       64       128  ==========");
    let counted = |cpu| CpuTraffic { cpu, refills: 70 + u64::from(cpu), drains: 5 };
    let traffic = Some(Ok((0..16).filter(|cpu| *cpu != 1).map(counted).collect()));
    let past = Past { traffic, ..Past::default() };
    let lines = screen(&mut view, &shown.clone().with_past(&past), 80, 24);
    assert!(lines[1].contains("by CPU; 1169 refills/s, 75 drains/s"), "{lines:#?}");
    assert_eq!(lines[3], "   0    64       64       128        70         5  ==========");
    assert_eq!(lines[4], "   1    64       64       128         -         -  ==========");
    let past = Past { traffic: Some(Err("no".into())), ..Past::default() };
    let lines = screen(&mut view, &shown.clone().with_past(&past), 80, 24);
    assert!(lines[1].contains("refills and drains not counted"), "{lines:#?}");
    view.press('g');
    let lines = screen(&mut view, &shown, 80, 24);
    assert_eq!(lines[22], "and 1005 more below", "{lines:#?}");
    key(&mut view, KeyCode::End);
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines[22].starts_with("  63 Normal    15 "), "{lines:#?}");
    key(&mut view, KeyCode::PageUp);
    key(&mut view, KeyCode::Home);
    assert!(screen(&mut view, &shown, 80, 24)[3].starts_with("   0 Normal     0 "));
}

#[test]
fn the_selected_row_is_on_the_screen_and_stays_what_it_was() {
    let now = machine(64, 1);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed_on(&shown, "2");
    (0..1000).for_each(|_| {
        key(&mut view, KeyCode::Down);
    });
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("  63 Normal")), "{lines:#?}");
    key(&mut view, KeyCode::Up);
    screen(&mut view, &shown, 80, 24);
    // A node goes, others stay: the row is still that of node 62.
    let mut fewer = now.clone();
    fewer.zones.remove(0);
    let shown = Shown::new("x", None, &fewer);
    screen(&mut view, &shown, 80, 24);
    key(&mut view, KeyCode::Enter);
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines.iter().any(|line| line.contains("zone Normal of node 62")), "{lines:#?}");
    fewer.zones.truncate(3);
    let lines = screen(&mut view, &Shown::new("x", None, &fewer), 80, 24);
    assert!(lines.iter().any(|line| line.contains("it is gone")), "{lines:#?}");
}

#[test]
fn the_mouse_opens_panes_selects_rows_and_scrolls() {
    let now = machine(64, 1);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed_on(&shown, "");
    mouse(&mut view, CLICK, 12, 0);
    assert_eq!(view.pane(), Pane::Zones);
    screen(&mut view, &shown, 80, 24);
    mouse(&mut view, CLICK, 5, 8);
    screen(&mut view, &shown, 80, 24);
    // The second click on a row is Enter; one more closes.
    mouse(&mut view, CLICK, 5, 8);
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines.iter().any(|line| line.contains("zone Normal of node 5")), "{lines:#?}");
    mouse(&mut view, CLICK, 5, 8);
    (0..100).for_each(|_| {
        mouse(&mut view, MouseEventKind::ScrollDown, 5, 8);
        screen(&mut view, &shown, 80, 24);
    });
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("  63 Normal")), "{lines:#?}");
    // Clicks where nothing is do nothing.
    for (column, row) in [(79, 0), (5, 1), (5, 2), (5, 23), (500, 500)] {
        mouse(&mut view, CLICK, column, row);
    }
    assert_eq!((view.pane(), screen(&mut view, &shown, 80, 24)), (Pane::Zones, lines));
}

#[test]
fn rows_of_a_node_and_nodes_that_go() {
    let now = machine(3, 2);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed_on(&shown, "2nn");
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines[1].contains("node 1 only") && lines[3].starts_with("   1 Normal"), "{lines:#?}");
    assert_eq!(lines[4], "");
    // Its node is taken out: all are shown again.
    let one = machine(1, 2);
    let lines = screen(&mut view, &Shown::new("x", None, &one), 80, 24);
    assert!(!lines[1].contains("only") && lines[3].starts_with("   0 Normal"), "{lines:#?}");
    let mut view = pressed_on(&shown, "2N");
    assert!(screen(&mut view, &shown, 80, 24)[1].contains("node 2 only"));
    view.press('a');
    assert!(!screen(&mut view, &shown, 80, 24)[1].contains("only"));
}

#[test]
fn processes_by_node() {
    let now = machine(2, 1);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed_on(&shown, "5");
    let lines = screen(&mut view, &shown, 80, 24);
    assert_eq!(
        lines[1..7],
        [
            "1970-01-01 00:00:05 UTC  by memory; 4 of 400, 1 not readable, 1 waiting  x",
            "    pid name              rss M faults  disk    N0 M    N1 M",
            "    103 worker 103          103     97     0      51      52",
            "    102 worker 102          102     98     0  not readable, of user 1000; ran on",
            "    101 worker 101          101     99     0      50      51  40 s ago",
            "    100 worker 100          100    100     0  takes long: Enter reads it; ran on",
        ]
    );
    // By faults, and of node 0 only: what is not known to be there is left out.
    view.press('s');
    view.press('n');
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(lines[3].starts_with("    101") && lines[4].starts_with("    103"), "{lines:#?}");
    assert_eq!(lines[5], "");
    view.press('a');
    screen(&mut view, &shown, 80, 24);
    assert_eq!(key(&mut view, KeyCode::Enter), Asked::Process(101));
    let lines = screen(&mut view, &shown, 80, 24);
    assert!(
        lines.iter().any(|line| line.contains("node    1         51 MiB   50 %")),
        "{lines:#?}"
    );
    // Of many nodes the largest are told.
    let many = machine(64, 1);
    let shown = Shown::new("x", None, &many);
    let lines = screen(&mut pressed_on(&shown, "5"), &shown, 80, 24);
    assert!(lines[3].ends_with("63:83 62:82 61:82 and 61 nodes"), "{lines:#?}");
    assert!(screen(&mut pressed_on(&shown, ""), &shown, 120, 24)[4].ends_with("  1x10 63x20"));
}

#[test]
fn events_tell_what_began_and_since_when() {
    let now = machine(2, 1);
    let mut past = Past { advice: vec!["problem X = 1: bad".into()], ..Past::default() };
    let first = Sample { time_ms: 2000, ..now.clone() };
    past.follow(&first, &marks(None, &first));
    for second in 3..=65 {
        let now = Sample { time_ms: second * 1000, ..now.clone() };
        past.follow(&now, &marks(None, &now));
    }
    let now = Sample { time_ms: 65_000, ..now };
    let shown = Shown::new("x", None, &now).with_past(&past).with_status("recording");
    let mut view = pressed_on(&shown, "6");
    let lines = screen(&mut view, &shown, 100, 24);
    assert_eq!(lines[1], "1970-01-01 00:01:05 UTC  recording  x");
    let reason = "node 1 Normal: 900 pages free, min 1000: only urgent requests get any";
    assert_eq!(
        lines[3..8],
        [
            format!("! refusing for 63 s {reason}"),
            format!("00:00:02 refusing began: {reason}"),
            "doctor: problem X = 1: bad".into(),
            "requests that reclaimed memory themselves:".into(),
            "  allocstall_normal                                         -                 3"
                .into(),
        ]
    );
    assert_eq!(lines[23], format!("! refusing for 63 s {reason}"));
    key(&mut view, KeyCode::Enter);
    let text = screen(&mut view, &shown, 100, 24).join("\n");
    let word = WORDS.iter().find(|word| word.word == "refusing").unwrap();
    assert!(text.contains(word.when) && text.contains("section refusing"), "{text}");
}

#[test]
fn details_of_a_zone_say_who_is_refused() {
    let now = machine(2, 1);
    let shown = Shown::new("x", None, &now);
    let mut view = pressed_on(&shown, "2");
    key(&mut view, KeyCode::Down);
    screen(&mut view, &shown, 80, 24);
    key(&mut view, KeyCode::Enter);
    let text = screen(&mut view, &shown, 100, 40).join("\n");
    // 900 pages, min 1000: interrupts may go below, ordinary requests may not.
    let row = |name| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().skip(1).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(
        row("GFP_KERNEL"),
        ["refused", "refused", "refused", "refused", "refused", "refused"]
    );
    assert_eq!(row("GFP_ATOMIC")[0], "given", "{text}");
}

#[test]
fn keys_ask_for_seeks_and_paces() {
    let mut view = View::default();
    assert_eq!(key(&mut view, KeyCode::Left), Asked::Seek(-10));
    assert_eq!(key(&mut view, KeyCode::Right), Asked::Seek(10));
    let shift = KeyEvent::new(KeyCode::Right, KeyModifiers::SHIFT);
    assert_eq!(view.handle(&Event::Key(shift)), Asked::Seek(60));
    let pressed = [',', '.', '[', ']', 'm', 'M', '+', '-', 'q'].map(|key| view.press(key));
    assert_eq!(
        pressed,
        [
            Asked::Seek(-1),
            Asked::Seek(1),
            Asked::Seek(-60),
            Asked::Seek(60),
            Asked::NextMark,
            Asked::LastMark,
            Asked::Plus,
            Asked::Minus,
            Asked::Quit
        ]
    );
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.handle(&Event::Key(control)), Asked::Quit);
    view.press(' ');
    assert!(view.is_paused());
}

#[test]
fn the_pane_of_a_program_is_there_where_one_is_watched() {
    let now = machine(1, 1);
    let mut past = Past { program: Some(vec!["pool (7)".into()]), ..Past::default() };
    let shown = Shown::new("x", None, &now).with_past(&past);
    let mut view = pressed_on(&shown, "7");
    assert_eq!(screen(&mut view, &shown, 80, 24)[3], "pool (7)");
    past.program = None;
    let shown = Shown::new("x", None, &now).with_past(&past);
    screen(&mut view, &shown, 80, 24);
    view.press('7');
    assert_eq!(view.pane(), Pane::Nodes);
}

#[test]
fn what_a_copy_says_does_not_command_the_terminal() {
    let mut now = machine(1, 1);
    now.zones[0].zone = "\u{1b}[2J".into();
    now.processes.list[0].name = "\u{1b}]0;x\u{7}\u{e9}".into();
    let shown = Shown::new("\u{7}box", None, &now);
    let lines = screen(&mut pressed_on(&shown, "2"), &shown, 80, 24);
    assert!(lines[1].ends_with("?box") && lines[3].contains("?[2J"), "{lines:#?}");
    let lines = screen(&mut pressed_on(&shown, "5"), &shown, 80, 24);
    assert!(lines[3].contains("?]0;x??") && lines.concat().is_ascii(), "{lines:#?}");
}
