//! Running models.

/// Runs a model in all interleavings with at most `preemptions` preemptions, and says in how many.
/// `NEARPAGE_PREEMPTIONS=n` allows n more.
pub fn explore(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let start = std::time::Instant::now();
    let more = std::env::var("NEARPAGE_PREEMPTIONS").ok();
    let more: usize = more.map_or(0, |more| more.parse().expect("preemptions are a number"));
    let runs = count(preemptions + more, model);
    println!("{name}: {runs} interleavings, {:.1} s", start.elapsed().as_secs_f64());
}

fn count(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> u64 {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Of models that take many locks before it gets interesting.
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    runs.load(Ordering::Relaxed)
}

/// Runs a canary, the model of the test called `test`, and asserts that it is found, with this message. A model that hangs
/// is found by a panic, after which loom's cells cannot be dropped: so it runs in a process of its own.
pub fn assert_found(test: &str, message: &str, model: impl Fn() + Sync + Send + 'static) {
    const MARK: &str = "NEARPAGE_LOOM_CANARY";
    if std::env::var_os(MARK).is_some() {
        count(3, model);
        return;
    }
    let this = std::env::current_exe().expect("this program has a file");
    let mut command = std::process::Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(MARK, "1").env("RUST_BACKTRACE", "0");
    let output = command.output().expect("this program can be run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{test}: the canary was not found");
    assert!(told.contains(message), "{test}: {told}");
}
