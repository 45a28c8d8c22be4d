//! Archives of /sys and /proc: tar, plain or compressed with gzip, bzip2, xz or zstd.
//!
//! The tree may stand at the root of the archive or one folder deep, as `hwloc-gather-topology` makes it.
//! A sosreport has answers of commands in the place of files.
//! Only the files that describe a machine are kept, so that a copy of a whole /proc does not matter.

use std::io::{self, ErrorKind, Read};

use crate::budget::Budget;
use crate::description::Place;
use crate::error::{InputError, InputProblem as Problem};
use crate::packing::{Packing, Unpacking, read_tar_files};
use crate::tree::{MemoryTree, is_machine_file};

/// Bytes of a block of a tar archive; the first one is a header.
const TAR_BLOCK_BYTES: usize = 512;

/// Unpacks the files of an archive that describe a machine; `input` is the archive's name.
pub(super) fn unpack(
    input: &str,
    packing: Packing,
    content: &[u8],
    budget: &Budget,
) -> Result<MemoryTree, InputError> {
    let unpacking = Unpacking::new(budget);
    let unpacked = unpacking.stream(packing, content);
    let unpacked = unpacked.and_then(|reader| read_tar(input, reader, &unpacking));
    unpacked.map_err(|error| {
        Problem::Archive { what: packing.name(), error }.at(&Place::Input(input.into()))
    })
}

fn read_tar(input: &str, mut content: impl Read, unpacking: &Unpacking) -> io::Result<MemoryTree> {
    let mut head = Vec::new();
    content.by_ref().take(TAR_BLOCK_BYTES as u64).read_to_end(&mut head)?;
    check_head(&head)?;
    let mut tree = MemoryTree::new(input);
    let content = io::Cursor::new(head).chain(content);
    let mut top = None;
    let name = |path: &str| machine_path(path, &mut top).map(str::to_owned);
    read_tar_files(content, unpacking, name, |path, file| {
        tree.insert(path, file);
    })?;
    Ok(tree)
}

/// Checks that the unpacked data can begin a tar archive. The format of 1979 has no magic number, but a checksum.
fn check_head(head: &[u8]) -> io::Result<()> {
    let is_empty = head.iter().all(|&byte| byte == 0);
    let has_checksum =
        || head.len() == TAR_BLOCK_BYTES && tar::Header::from_byte_slice(head).cksum().is_ok();
    match is_empty || Packing::of(head) == Some(Packing::Tar) || has_checksum() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidData, "what is packed is no tar archive")),
    }
}

/// The path below the tree's root, if the file helps to describe a machine. `top` is the folder of the tree once it is
/// known; it is empty for the archive's root.
fn machine_path<'p>(path: &'p str, top: &mut Option<String>) -> Option<&'p str> {
    const ROOTS: [&str; 3] = ["sys/", "proc/", "sos_commands/"];
    let is_root = |path: &str| ROOTS.iter().any(|root| path.starts_with(root));
    let (folder, below) = match path.split_once('/') {
        Some(_) if is_root(path) => ("", path),
        Some((folder, below)) if is_root(below) => (folder, below),
        _ => return None,
    };
    let is_wanted = is_machine_file(below) && *top.get_or_insert_with(|| folder.into()) == folder;
    is_wanted.then_some(below)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::tree::FileTree;

    use super::*;

    /// A tar archive of some files.
    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn xz(content: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    fn unpack(content: &[u8]) -> Result<MemoryTree, String> {
        let packing = Packing::of(content).unwrap();
        super::unpack("box", packing, content, &Budget::DEFAULT).map_err(|error| error.to_string())
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(content: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_packing_is_recognised_and_read() {
        let plain = tar(&[("sys/devices/system/node/online", b"0-1\n")]);
        for packed in [plain.clone(), gzip(&plain), bzip2(&plain), zstd(&plain), xz(&plain)] {
            let tree = unpack(&packed).unwrap();
            assert_eq!(tree.read("sys/devices/system/node/online").unwrap().unwrap(), b"0-1\n");
        }
        assert_eq!(Packing::of(b"available: 1 nodes (0)"), None);
    }

    #[test]
    fn trees_stand_at_the_root_or_one_folder_deep() {
        let files: [(&str, &[u8]); 6] = [
            ("./box/notes.txt", b"x"),
            ("./box/sys/devices/system/cpu/online", b"0\n\0\0\0"),
            ("box/proc/meminfo", b"MemTotal: 4 kB\n"),
            ("box/proc/self/maps", b"x"),
            ("other/proc/meminfo", b"MemTotal: 8 kB\n"),
            ("box/deep/proc/zoneinfo", b"x"),
        ];
        let tree = unpack(&tar(&files)).unwrap();
        assert_eq!(tree.read("sys/devices/system/cpu/online").unwrap().unwrap(), b"0\n");
        assert_eq!(tree.read("proc/meminfo").unwrap().unwrap(), b"MemTotal: 4 kB\n");
        assert!(tree.read("proc/self/maps").unwrap().is_none());
        let numactl = b"available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 8 MB\n";
        let sos = tar(&[("sos-box/sos_commands/numa/numactl_--hardware", numactl)]);
        let list = unpack(&sos).unwrap().read("sys/devices/system/node/node0/cpulist");
        assert_eq!(list.unwrap().unwrap(), b"0-1\n");
        assert!(tree.read("proc/zoneinfo").unwrap().is_none());
    }

    #[test]
    fn damaged_archives_are_refused() {
        let plain = tar(&[("sys/devices/system/node/online", &[b'0'; 5000])]);
        let packed = gzip(&plain);
        let message = unpack(&packed[..packed.len() / 2]).unwrap_err();
        assert!(message.starts_with("box: gzip: "), "{message}");
        assert!(unpack(&plain[..1000]).unwrap_err().starts_with("box: tar archive: "));
    }

    #[test]
    fn damage_of_zstd_is_told_in_words() {
        let refused = |packed: &[u8], problem: &str| {
            assert_eq!(
                unpack(packed).unwrap_err(),
                format!(
                    "box: zstd: {problem}, expected a whole tar archive of /sys and /proc, plain or \
                     packed with gzip, bzip2, xz or zstd"
                )
            );
        };
        let packed = zstd(&tar(&[("sys/devices/system/node/online", b"0-1\n")]));
        for length in [4, 5, 7, 20, packed.len() / 2] {
            refused(&packed[..length], "the packed data end early");
        }
        // Behind magic and frame header: a block of the reserved type.
        let reserved = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0][..], &[0xff; 100]].concat();
        refused(&reserved, "the packed data are damaged");
        refused(&zstd(&[b'x'; 5000]), "what is packed is no tar archive");
    }

    proptest::proptest! {
        /// An archive with some bytes changed is read or refused.
        #[test]
        fn any_damage_is_read_or_refused(
            packing in 0usize..5,
            damage in proptest::collection::vec((0usize..100_000, 0u8..), 1..4),
        ) {
            let plain = tar(&[("sys/devices/system/node/online", b"0-1\n")]);
            let mut packed = [|c: &[u8]| c.to_vec(), gzip, bzip2, zstd, xz][packing](&plain);
            for (at, byte) in damage {
                let at = at % packed.len();
                packed[at] = byte;
            }
            if let Some(packing) = Packing::of(&packed) {
                let _ = super::unpack("damaged", packing, &packed, &Budget::DEFAULT);
            }
        }
    }
}
