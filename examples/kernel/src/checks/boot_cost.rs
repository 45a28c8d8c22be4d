//! What a boot costs: instructions and metadata of a frame, with what is deferred.

use nearpage::{Config, NodeIndex, PageCount, metadata_size};
use nearpage_kernel::boot::Deferred;
use nearpage_kernel::{KernelPlatform, Pages};
use nearpage_slab::SlabConfig;

use crate::mine::Mine;
use crate::{arch, log};

/// `boot_ns` is what the boot itself took. The emulator counts an instruction as a nanosecond.
pub fn run(pages: &Pages<'_, Mine>, deferred: &Deferred<Mine>, boot_ns: u64) {
    let begin = arch::now_ns();
    let mut later = 0;
    loop {
        let came = deferred.step(PageCount(1 << 15)).expect("nobody else brings it online");
        later += came.0;
        if came.0 == 0 {
            break;
        }
    }
    let later_ns = arch::now_ns() - begin;
    let frames: u64 = pages.zones().iter().map(|zone| zone.managed().0).sum();
    let tenths = |total: u64, of: u64| total * 10 / of.max(1);
    let (all, deferred) = (tenths(boot_ns + later_ns, frames), tenths(later_ns, later));
    log!(
        "boot: {}.{} instructions a frame for {frames} frames; {later} of them came later, for {}.{} each",
        all / 10,
        all % 10,
        deferred / 10,
        deferred % 10
    );
    let topology = pages.topology();
    let (mut of_pages, mut of_heap) = (0, 0);
    for node in (0..topology.len() as u16).map(NodeIndex) {
        let bytes = metadata_size::<KernelPlatform<Mine>>(topology, &Config::new(), node);
        of_pages += bytes.expect("it was booted with") as u64;
        let bytes = SlabConfig::default().metadata_size::<KernelPlatform<Mine>>(topology, node);
        of_heap += bytes.expect("it was booted with") as u64;
    }
    let (pages, heap) = (tenths(of_pages, frames), tenths(of_heap, frames));
    log!(
        "boot: {}.{} bytes of metadata a frame for pages, {}.{} more for the heap",
        pages / 10,
        pages % 10,
        heap / 10,
        heap % 10
    );
}
