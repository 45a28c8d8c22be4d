use std::cell::{Cell, RefCell};
use std::sync::LazyLock;

use super::*;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// What the readings of this test have taken so far.
    static TAKEN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn clock() -> Instant {
    *BEGIN + TAKEN.get()
}

fn reader(budget: Option<Duration>) -> ProcessReader {
    ProcessReader { clock, ..ProcessReader::new(budget) }
}

/// A tree whose processes come and go, and some of which may not be read.
#[derive(Default)]
struct Changing {
    files: RefCell<BTreeMap<String, Vec<u8>>>,
    denied: RefCell<Vec<String>>,
    reads: Cell<usize>,
    /// How long a numa_maps takes.
    takes: Cell<Duration>,
}

impl FileTree for Changing {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.reads.set(self.reads.get() + 1);
        let takes = self.takes.get() * u32::from(path.ends_with("numa_maps"));
        TAKEN.set(TAKEN.get() + takes + Duration::from_micros(1));
        if self.denied.borrow().iter().any(|denied| denied == path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(self.files.borrow().get(path).cloned())
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let below = format!("{path}/");
        let files = self.files.borrow();
        let names = files.keys().filter_map(|file| file.strip_prefix(&below)?.split('/').next());
        Ok(names.map(String::from).collect())
    }

    fn display(&self, path: &str) -> String {
        path.into()
    }
}

impl Changing {
    fn add(&self, pid: u32, start: u64, rss: u64, faults: u64) {
        let stat = format!(
            "{pid} (p{pid}) S 1 1 1 0 -1 0 {faults} 0 0 0 5 6 0 0 20 0 1 0 {start} 9000 {rss} \
             1 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0"
        );
        let mut files = self.files.borrow_mut();
        files.insert(format!("proc/{pid}/stat"), stat.into());
        files.insert(format!("proc/{pid}/status"), "Uid:\t7\nMems_allowed_list:\t0-1\n".into());
        let maps = format!("7f00 default anon={rss} N1={rss} kernelpagesize_kB=4\n");
        files.insert(format!("proc/{pid}/numa_maps"), maps.into());
    }

    fn end(&self, pid: u32) {
        let begins = format!("proc/{pid}/");
        self.files.borrow_mut().retain(|path, _| !path.starts_with(&begins));
    }
}

fn refresh(reader: &mut ProcessReader, tree: &Changing) -> Processes {
    reader.refresh(tree, 100, 4, |cpu| Some(cpu * 10))
}

#[test]
fn what_is_known_is_told() {
    let tree = Changing::default();
    tree.add(1, 5, 100, 0);
    tree.add(2, 5, 300, 0);
    tree.add(3, 5, 0, 0); // a thread of the kernel
    tree.files.borrow_mut().insert("proc/meminfo".into(), Vec::new());
    tree.denied.borrow_mut().push("proc/1/numa_maps".into());
    let read = refresh(&mut reader(None), &tree);
    let [large, small] = &read.list[..] else { panic!("{read:?}") };
    assert_eq!(
        (large.pid, large.rss, large.on(1), large.placement),
        (2, 1200, 1200, Placement::Read)
    );
    assert_eq!((small.pid, small.rss, small.placement), (1, 400, Placement::Denied));
    // What can be known is: who it is, where it runs, what it may use.
    assert_eq!((small.uid, small.runs_on, small.may_use.as_str()), (Some(7), Some(10), "0-1"));
    assert!(small.is_of(10) && !small.is_of(1) && large.is_of(1));
    assert_eq!((read.seen, read.denied, read.waiting), (2, 1, 0));
}

#[test]
fn processes_end_and_pids_are_given_again() {
    let tree = Changing::default();
    tree.add(1, 5, 100, 10);
    tree.add(2, 5, 50, 10);
    let mut reader = reader(None);
    assert_eq!(refresh(&mut reader, &tree).list[0].minor_faults, None);
    tree.add(1, 5, 100, 1_000_000);
    tree.end(2);
    let read = refresh(&mut reader, &tree);
    assert!(read.list.len() == 1 && read.list[0].minor_faults > Some(0), "{read:?}");
    // A counter that goes back is no rate; another process with the same PID has none yet.
    tree.add(1, 5, 100, 3);
    assert_eq!(refresh(&mut reader, &tree).list[0].minor_faults, None);
    tree.add(1, 99, 70, 3_000_000);
    assert_eq!(refresh(&mut reader, &tree).list[0].minor_faults, None);
    // It ends between the list and its files.
    tree.files.borrow_mut().remove("proc/1/stat");
    assert_eq!(refresh(&mut reader, &tree), Processes::default());
}

#[test]
fn thousands_take_turns_and_the_largest_come_first() {
    let tree = Changing::default();
    for pid in 1..=3000 {
        tree.add(pid, 5, u64::from(pid), 0);
    }
    let mut reader = reader(Some(Duration::from_micros(500)));
    for _ in 0..400 {
        if refresh(&mut reader, &tree).seen == 3000 {
            break;
        }
    }
    let read = refresh(&mut reader, &tree);
    assert_eq!(read.seen, 3000, "every process has its turn");
    tree.reads.set(0);
    tree.add(9999, 5, 1_000_000, 0);
    for turn in 1.. {
        let read = refresh(&mut reader, &tree);
        if read.list[0].pid == 9999 && read.list[0].placement == Placement::Read {
            break;
        }
        assert!(turn < 400, "a large one that is new is never read: {:?}", read.list[0]);
    }
}

#[test]
fn a_placement_that_takes_long_is_paid_back_and_one_that_takes_too_long_is_read_on_request() {
    let tree = Changing::default();
    // By their size they would take 2 ms each.
    tree.add(1, 5, 100_000, 0);
    tree.add(2, 5, 99_999, 0);
    tree.takes.set(Duration::from_millis(3));
    let mut reader = reader(Some(Duration::from_millis(2)));
    let placed = |read: &Processes| {
        read.list.iter().filter(|process| process.placement == Placement::Read).count()
    };
    assert_eq!(placed(&refresh(&mut reader, &tree)), 2, "on credit");
    // Without it, one at a time.
    (reader.credit, reader.known) = (Duration::ZERO, BTreeMap::new());
    assert_eq!(placed(&refresh(&mut reader, &tree)), 1);
    // 2334 us are owed, and each refresh pays 666 us back: three do not pay all.
    for _ in 0..3 {
        assert_eq!(placed(&refresh(&mut reader, &tree)), 1, "it is owed");
    }
    assert_eq!(placed(&refresh(&mut reader, &tree)), 2, "it is paid");
    tree.add(3, 5, 1 << 40, 0);
    let told = (0..20).find(|_| {
        refresh(&mut reader, &tree).list.first().map(|first| first.placement)
            == Some(Placement::TooLong)
    });
    assert!(told.is_some());
    reader.want(3);
    let read = refresh(&mut reader, &tree);
    assert_eq!((read.list[0].pid, read.list[0].placement), (3, Placement::Read));
}
