//! What the entry reaches: a boot, blocks of any order from any node, and what features add.

use core::hint::black_box;

use nearpage::{Gfp, NodeId, Order, PageCount, Pfn, Request};
use nearpage_kernel::TicketLock;
use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::Machine;

use crate::mine::{Mine, allocator};

static MACHINE: TicketLock<Mine, Machine> = TicketLock::new(Machine::new());
static MEMORY: TicketLock<Mine, EarlyMemory> = TicketLock::new(EarlyMemory::new());

/// A free was refused: weighed as a kernel that only counts it.
pub fn refused(error: &dyn core::fmt::Display) {
    black_box(core::ptr::from_ref(error).addr());
}

#[unsafe(no_mangle)]
extern "C" fn size_entry(start: u64, length: u64, order: u8, node: u32) -> ! {
    let (mut machine, mut memory) = (MACHINE.lock(), MEMORY.lock());
    let added = memory.add(start, length).and_then(|()| memory.reserve(start, 4096));
    #[cfg(feature = "acpi")]
    black_box(nearpage_kernel::firmware::acpi::read(&Mapped, start, &mut machine).is_ok());
    if added.is_ok()
        && let Ok((pages, deferred)) = allocator(&mut machine, &mut memory)
    {
        let _ = black_box(deferred.step(PageCount(length)));
        let request = Request::new(Order(order), Gfp::KERNEL);
        let request = if node == 0 { request } else { request.on(NodeId(node)) };
        if let Ok(block) = black_box(pages.alloc(request)) {
            let _ = black_box(pages.free(block, Order(order)));
        }
        let _ = black_box(pages.free(Pfn(start), Order(order)));
        #[cfg(feature = "heap")]
        black_box(alloc::vec![order; length as usize].len());
        #[cfg(feature = "all")]
        crate::everything::reach(pages, request, start);
    }
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(feature = "acpi")]
struct Mapped;

#[cfg(feature = "acpi")]
impl nearpage_kernel::firmware::Physical for Mapped {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        // SAFETY: this is weighed, and never runs.
        Some(unsafe { core::slice::from_raw_parts(crate::arch::phys_to_virt(address), length) })
    }
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
