//! Trims that a program asks for.

use std::time::Duration;

use nearpage_malloc::{Options, free, malloc, statistics, trim};

/// 4 MiB, used and freed.
fn swing() {
    let blocks: Vec<*mut u8> = (0..4).map(|_| malloc(1 << 20)).collect();
    for block in blocks {
        // SAFETY: the block is ours and so large, and nobody uses it after that.
        unsafe {
            block.write_bytes(1, 1 << 20);
            free(block);
        }
    }
}

#[test]
fn who_asks_each_time_is_heard_now_and_then() {
    nearpage_malloc::start(Options::default()).unwrap();
    swing();
    assert!(trim() > 0, "the first goes at once");
    let (before, calls) = (statistics().trims, 1000);
    (0..calls).for_each(|_| {
        swing();
        trim();
    });
    let trims = statistics().trims - before;
    assert!(trims < calls / 2, "{trims} trims of {calls} calls");
    // A call after a rest gives back.
    swing();
    let is_heard = (0..10).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        swing();
        trim() > 0
    });
    assert!(is_heard);
}
