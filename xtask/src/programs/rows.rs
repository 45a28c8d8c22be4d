//! The programs: rows of the table.
//!
//! A script runs in an empty folder. `m COMMAND` runs a program under the malloc, `server COMMAND &` one that runs
//! until `$server` gets a signal, `$INPUTS` is where `setup` ran, once. What
//! a script prints must not depend on the malloc, nor on the time.

use std::process::{Command, Stdio};

/// A program that must be installed.
pub(super) struct Need {
    pub program: &'static str,
    /// Debian's package.
    pub package: &'static str,
}

/// A program with its work.
pub(super) struct Row {
    pub name: &'static str,
    pub needs: &'static [Need],
    /// Makes what all runs of it read, in the folder of inputs. `$SOURCES` is `bench/programs`.
    pub setup: &'static str,
    pub script: &'static str,
    /// The program whose allocations must have been counted, by the name of its process, and how many at least.
    pub counted: (&'static str, u64),
    /// Whether it has rounds; else it only must be right.
    pub is_timed: bool,
    /// Whether its wall time is its own: not if it waits for the next second of a clock.
    pub has_wall: bool,
    /// Whether it is part of the short form.
    pub is_short: bool,
}

impl Row {
    /// What is not installed of what it needs.
    pub fn missing(&self) -> Option<&'static Need> {
        self.needs.iter().find(|need| {
            let look = format!("command -v {}", need.program);
            let found = Command::new("sh").args(["-c", &look]).stdout(Stdio::null()).status();
            !found.is_ok_and(|status| status.success())
        })
    }
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

const CC: Need = need("gcc", "gcc");
const PYTHON: Need = need("python3", "python3");

const fn usual(
    name: &'static str,
    needs: &'static [Need],
    setup: &'static str,
    script: &'static str,
    counted: (&'static str, u64),
) -> Row {
    Row { name, needs, setup, script, counted, is_timed: true, has_wall: true, is_short: false }
}

/// The interpreter itself: what is first in the path may be a script that finds it.
const PYTHON_SETUP: &str =
    "python3 -c 'import sys; print(sys.executable)' >python; cp \"$SOURCES\"/*.py .";

/// One of our six programs.
macro_rules! own {
    ($name:literal, $least:literal) => {
        own!($name, $least, "")
    };
    ($name:literal, $least:literal, $arguments:literal) => {
        Row {
            name: $name,
            needs: &[CC],
            // Without -fno-builtin compilers leave out allocations that nothing is done with.
            setup: concat!(
                "gcc -O2 -std=c99 -fno-builtin-malloc -pthread -o ",
                $name,
                " \"$SOURCES\"/",
                $name,
                ".c"
            ),
            script: concat!("m \"$INPUTS\"/", $name, " ", $arguments),
            // The kernel keeps 15 characters of a name, the C library all.
            counted: ($name, $least),
            is_timed: true,
            has_wall: true,
            is_short: true,
        }
    };
}

const LARGE_C: &str = "awk -f \"$SOURCES/large_c.awk\" >large.c";
const LARGE_CPP: &str = "awk -f \"$SOURCES/large_cpp.awk\" >large.cpp";
const LINES: &str = "awk -f \"$SOURCES/lines.awk\" >lines";
const REPOSITORY: &str = "awk -f \"$SOURCES/repository.awk\" >stream; rm -rf repository
git init -q --bare -b main repository && git -C repository fast-import --quiet <stream";

pub(super) const ROWS: &[Row] = &[
    usual(
        "redis",
        &[need("redis-server", "redis-server"), need("redis-benchmark", "redis-tools")],
        "awk -f \"$SOURCES/commands.awk\" >commands",
        r#"server redis-server --port 0 --unixsocket "$PWD/s" --save '' --appendonly no --logfile log &
server=$!
for turn in $(seq 200); do redis-cli -s s ping >/dev/null 2>&1 && break; sleep 0.02; done
redis-benchmark -s s -t set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100 -n 15000 -c 20 -P 8 -d 200 -r 20000 -q >/dev/null
redis-cli -s s flushall
redis-cli -s s --pipe <"$INPUTS/commands" | tail -1
for key in 1 99 15000; do redis-cli -s s get fixed:$key; redis-cli -s s llen list:$((key % 50)); done
redis-cli -s s dbsize
redis-cli -s s shutdown nosave
wait $server"#,
        ("redis-server", 50_000),
    ),
    Row {
        // It ends when its clock ticks next.
        has_wall: false,
        ..usual(
            "memcached",
            &[need("memcached", "memcached"), PYTHON],
            PYTHON_SETUP,
            r#"server memcached -u root -s "$PWD/s" -t 2 -m 128 & server=$!
$(cat "$INPUTS/python") "$INPUTS/memcached_client.py" "$PWD/s"
kill $server; wait $server"#,
            ("memcached", 200),
        )
    },
    usual(
        "sqlite",
        &[need("sqlite3", "sqlite3")],
        "cp \"$SOURCES/speed.sql\" .",
        "m sqlite3 :memory: <\"$INPUTS/speed.sql\"",
        ("sqlite3", 100_000),
    ),
    usual(
        "postgresql",
        &[need("psql", "postgresql"), need("setpriv", "util-linux")],
        "ls -d /usr/lib/postgresql/*/bin /usr/local/pgsql/bin 2>/dev/null | tail -1 >postgresql; test -s postgresql",
        r#"bin=$(cat "$INPUTS/postgresql")
m $AS_USER "$bin/initdb" -D data -A trust -U near --no-sync --locale=C >/dev/null
server $AS_USER "$bin/postgres" -D data -k "$PWD" -c listen_addresses= -c fsync=off -c shared_buffers=16MB >log 2>&1 & server=$!
for turn in $(seq 400); do "$bin/pg_isready" -q -h "$PWD" && break; sleep 0.02; done
psql -q -h "$PWD" -U near -d postgres -c 'CREATE DATABASE bench'
"$bin/pgbench" -h "$PWD" -U near -i -q -s 2 bench >/dev/null 2>&1
"$bin/pgbench" -h "$PWD" -U near -c 4 -j 2 -t 250 -M prepared bench 2>/dev/null | grep processed
psql -At -h "$PWD" -U near -d bench -c "SELECT count(*), (SELECT count(*) FROM pgbench_history) FROM pgbench_accounts" -c "SELECT md5(string_agg(aid::text, ',' ORDER BY aid)) FROM pgbench_accounts"
kill $server; wait $server"#,
        ("postgres", 10_000),
    ),
    Row {
        is_short: true,
        ..usual(
            "python3",
            &[PYTHON],
            PYTHON_SETUP,
            "m \"$(cat \"$INPUTS/python\")\" \"$INPUTS/work.py\"",
            ("python3", 10_000),
        )
    },
    usual(
        "python3-malloc",
        &[PYTHON],
        PYTHON_SETUP,
        "PYTHONMALLOC=malloc m \"$(cat \"$INPUTS/python\")\" \"$INPUTS/work.py\"",
        ("python3", 1_000_000),
    ),
    Row {
        is_timed: false,
        ..usual(
            "python3-tests",
            &[PYTHON],
            PYTHON_SETUP,
            // What fails here without another malloc too must fail with it.
            r#"run() { m "$(cat "$INPUTS/python")" -m unittest -q test.test_$1 2>&1 | grep -E '^(Ran|OK|FAILED|FAIL|ERROR)' | sed 's/ in .*//'; }
for test in json re threading; do run $test; done
# It looks at all descriptors of its processes, and would find that of the report.
NEARPAGE_MALLOC_REPORT=
run subprocess"#,
            ("python3", 100_000),
        )
    },
    usual(
        "perl",
        &[need("perl", "perl")],
        "cp \"$SOURCES/work.pl\" .",
        "m perl \"$INPUTS/work.pl\"",
        ("perl", 100_000),
    ),
    usual(
        "node",
        &[need("node", "nodejs")],
        "cp \"$SOURCES/work.js\" .",
        "m node \"$INPUTS/work.js\"",
        ("node", 10_000),
    ),
    usual(
        "gcc",
        &[CC],
        LARGE_C,
        "m gcc -O2 -w -c -o large.o \"$INPUTS/large.c\"\ncksum <large.o",
        ("cc1", 20_000),
    ),
    usual(
        "g++",
        &[need("g++", "g++")],
        LARGE_CPP,
        "m g++ -O2 -std=c++17 -w -c -o large.o \"$INPUTS/large.cpp\"\ncksum <large.o",
        ("cc1plus", 20_000),
    ),
    usual(
        "clang",
        &[need("clang", "clang")],
        LARGE_C,
        "m clang -O2 -w -c -o large.o \"$INPUTS/large.c\"\ncksum <large.o",
        ("clang", 100_000),
    ),
    usual(
        "cargo",
        &[need("cargo", "cargo")],
        "cargo_of() { rustup which cargo 2>/dev/null || command -v cargo; }\ncargo_of >cargo\nmkdir -p workspace\ntar c -C \"$SOURCES/../..\" --exclude=./target --exclude=./.git --exclude=./bundles --exclude=./oracle --exclude=./docs . | tar x -C workspace",
        r#"for turn in 1 2 3; do
m "$(cat "$INPUTS/cargo")" metadata --offline --locked --all-features --format-version 1 --manifest-path "$INPUTS/workspace/Cargo.toml" | cksum
m "$(cat "$INPUTS/cargo")" tree --offline --locked --workspace --edges all --manifest-path "$INPUTS/workspace/Cargo.toml" | cksum
done"#,
        ("cargo", 100_000),
    ),
    usual(
        "git",
        &[need("git", "git")],
        REPOSITORY,
        r#"m git clone -q --no-local "$INPUTS/repository" clone 2>/dev/null
m git -C clone -c pack.threads=2 gc -q --aggressive --prune=now
m git -C clone fsck --no-progress
m git -C clone log -p --stat | cksum"#,
        ("git", 10_000),
    ),
    Row {
        is_short: true,
        ..usual(
            "sort",
            &[need("sort", "coreutils")],
            LINES,
            "m sort --parallel=2 -k3 -k1n \"$INPUTS/lines\" >sorted\ncksum <sorted",
            // It asks for one large buffer and little else.
            ("sort", 10),
        )
    },
    usual(
        "xz",
        &[need("xz", "xz-utils")],
        LINES,
        "head -c 3000000 \"$INPUTS/lines\" >lines\nm xz -3 -T2 -c lines >lines.xz\nm xz -dc lines.xz | cksum\ncksum <lines.xz",
        ("xz", 10),
    ),
    usual(
        "ffmpeg",
        &[need("ffmpeg", "ffmpeg")],
        "",
        "m ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=25:duration=6 -threads 2 -c:v mpeg4 -bitexact -f avi out.avi\nm ffmpeg -v error -bitexact -i out.avi -f framemd5 - | tail -20",
        ("ffmpeg", 5_000),
    ),
    usual(
        "stress-ng",
        &[need("stress-ng", "stress-ng")],
        "",
        "m stress-ng --quiet --seed 7 --malloc 2 --malloc-ops 400000 --malloc-max 400 --malloc-bytes 256K --verify --fork 1 --fork-ops 400 && echo passed",
        ("stress-ng", 10_000),
    ),
    own!("larson", 10_000_000),
    own!("xmalloc", 10_000_000),
    own!("cache_scratch", 2),
    own!("cache_thrash", 2),
    own!("producer_consumer", 1_000_000),
    own!("growing_vectors", 100_000),
    Row {
        is_timed: false,
        is_short: true,
        ..usual(
            // As it is handed out, a panic of the library ends the process: only here what `new` throws passes through that.
            "cpp-new",
            &[need("g++", "g++")],
            "g++ -O1 -w -pthread -o cpp-new \"$SOURCES\"/../../crates/nearpage-preload/tests/news.cpp",
            "m \"$INPUTS\"/cpp-new",
            ("cpp-new", 40_000),
        )
    },
];
