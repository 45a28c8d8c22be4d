//! Real files, read as the tools that wrote them print them; and damaged ones.
//!
//! `tests/binary` has a load of a guest of Linux 6.12, recorded by trace-cmd 3.1 in both versions of its file (without
//! kallsyms), and one of 6.18, recorded by perf 6.1 (names of other tasks are blank), each with the text that its tool prints.

use std::fs;
use std::path::Path;

use crate::{Event, TraceCounts, TraceError, read_trace, unpacked};

use super::*;

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary").join(name);
    let content = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !name.ends_with(".zst") {
        return content;
    }
    let mut whole = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(&content[..]).unwrap().read_to_end(&mut whole).unwrap();
    whole
}

/// Who, where, when (in microseconds) and what, of each event.
type Told = Vec<(Vec<u8>, u32, u32, u64, String)>;

fn told(content: &[u8]) -> Result<(Told, TraceCounts), TraceError> {
    let mut told = Vec::new();
    let text = unpacked(content, &nearpage_machine::Budget::DEFAULT)
        .map_err(|source| TraceError::Unreadable { input: "t".into(), offset: 0, source })?;
    let counts = read_trace::<TraceError>("t", text, |event| {
        let what = match event.event {
            // Tools print markers with who wrote them.
            Event::Marker(text) => {
                let text = String::from_utf8_lossy(text);
                text.rsplit(": ").next().unwrap_or_default().to_owned()
            }
            other => format!("{other:?}"),
        };
        let time_us = (event.time_ns + 500) / 1000;
        told.push((event.comm.to_vec(), event.pid, event.cpu.0, time_us, what));
        Ok(())
    })?;
    Ok((told, counts))
}

fn check(binary: &str, text: &str, least: usize) {
    let (own, counts) = told(&file(binary)).unwrap_or_else(|error| panic!("{binary}: {error}"));
    let (mut theirs, _) = told(&file(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!((counts.unsorted, counts.other_lines), (0, 0));
    assert!(own.len() >= least, "{binary}: {}", own.len());
    assert_eq!(own.len(), theirs.len(), "{binary}");
    for (own, theirs) in own.iter().zip(&mut theirs) {
        assert!(own.3.abs_diff(theirs.3) <= 1, "{own:?} {theirs:?}");
        theirs.3 = own.3;
        assert_eq!(own, theirs, "{binary}");
    }
}

#[test]
fn files_of_trace_cmd_and_perf_are_read_as_their_tools_print_them() {
    check("trace-v6.dat", "trace-v6.txt.zst", 800);
    check("trace-v7.dat", "trace-v7.txt.zst", 900);
    check("perf.data.zst", "perf.txt.zst", 280);
}

#[test]
fn binary_files_tell_their_kernel() {
    let kernel = |name| told(&file(name)).unwrap().1.kernel.unwrap_or_default();
    for (name, expected) in
        [("trace-v6.dat", "6.12."), ("trace-v7.dat", "6.12."), ("perf.data.zst", "6.18.")]
    {
        assert!(kernel(name).starts_with(expected), "{name}: {}", kernel(name));
    }
    let ctf = told(&[0xc1, 0x1f, 0xfc, 0xc1, 0, 0, 0, 0]).unwrap_err().to_string();
    assert!(ctf.contains("babeltrace2"), "{ctf}");
}

/// Every byte of the descriptions, and many of the records, are changed; and files end everywhere.
#[test]
fn damage_is_told_and_never_panics() {
    let mut told_damage = 0;
    for name in ["trace-v6.dat", "trace-v7.dat", "perf.data.zst"] {
        let whole = file(name);
        let step = (whole.len() / 100).max(1);
        for at in (0..whole.len()).step_by(step).chain(0..60) {
            for value in [0x00, 0xff, whole[at] ^ 0x10] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                told_damage += usize::from(told(&damaged).is_err());
            }
            told_damage += usize::from(told(&whole[..at]).is_err());
        }
    }
    assert!(told_damage > 150, "{told_damage}");
}

#[test]
fn what_cannot_be_read_is_told() {
    let message = |content: &[u8]| told(content).unwrap_err().to_string();
    let whole = file("trace-v6.dat");
    let mut other = whole.clone();
    other[MAGIC_BYTES] = b'5';
    assert!(message(&other).contains("trace.dat of version 5; versions 6 and 7 are read"));
    assert!(
        message(&whole[..2000]).contains("bytes are announced and"),
        "{}",
        message(&whole[..2000])
    );
    let mut piped = b"PERFILE2".to_vec();
    piped.extend(16_u64.to_le_bytes());
    assert!(message(&piped).contains("record with `perf record -o FILE`"));
    let mut compressed = file("perf.data.zst");
    let number = |at: usize| u64::from_le_bytes(compressed[at..at + 8].try_into().unwrap());
    let (data, end) = (number(40) as usize, (number(40) + number(48)) as usize);
    let cut = message(&compressed[..end - 100]);
    assert!(
        cut.contains(&format!("{} of {} bytes of its records", end - 100 - data, end - data))
            && cut.contains("no record can be read"),
        "{cut}"
    );
    for at in [end, end + 20, end + 200] {
        let cut = message(&compressed[..at]);
        assert!(cut.contains("cut off behind its records"), "{cut}");
    }
    // What follows the formats is not needed.
    assert!(told(&compressed[..compressed.len() - 1]).is_ok());
    let mut killed = compressed[..end].to_vec();
    killed[48..104].fill(0);
    assert!(message(&killed).contains("perf did not end by itself"), "{}", message(&killed));
    let data = u64::from_le_bytes(compressed[40..48].try_into().unwrap()) as usize;
    compressed[data..data + 4].copy_from_slice(&81_u32.to_le_bytes());
    assert!(message(&compressed).contains("record without `-z`"));
}

/// A file in which each of 60 000 descriptions names all of it.
#[test]
fn descriptions_that_name_the_whole_file_are_refused_at_once() {
    let mut file = b"PERFILE2".to_vec();
    let attrs: u64 = 80;
    let mut numbers = vec![104, attrs, 104, attrs * 60_000, 104, 8, 0, 0, 2, 0, 0, 0];
    numbers.resize(12, 0);
    file.extend(numbers.iter().flat_map(|number: &u64| number.to_le_bytes()));
    // Descriptions overlap: each ends with a place and a length, which are those of all of the file.
    let whole = attrs as usize * 60_000 + 104;
    while file.len() < whole {
        file.extend(0_u64.to_le_bytes());
        file.extend((whole as u64 & !7).to_le_bytes());
    }
    file.truncate(whole);
    let began = std::time::Instant::now();
    let error = told(&file).unwrap_err().to_string();
    assert!(error.contains("more ids than the file can have"), "{error}");
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}
