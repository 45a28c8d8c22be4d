//! From what the loader left to pages of both nodes.

use nearpage::{Config, CpuId, Gfp, Order, Request};
use nearpage_kernel::boot::{ADDRESS_MAP, EarlyMemory, pvh};
use nearpage_kernel::firmware::{Machine, acpi};
use nearpage_kernel::{Interrupts, Kernel, TicketLock};

use crate::pc;

struct Mine;

// SAFETY: one CPU runs, with interrupts off, and all memory is mapped where it is.
unsafe impl Kernel for Mine {
    type Rules = nearpage::rules::Places;
    fn this_cpu() -> CpuId {
        CpuId(0)
    }
    fn interrupts_off() -> Interrupts {
        Interrupts(0)
    }
    fn interrupts_restore(_before: Interrupts) {}
    fn now_ns() -> u64 {
        0
    }
    fn phys_to_virt(address: u64) -> *mut u8 {
        pc::mapped(address)
    }
}

static MACHINE: TicketLock<Mine, Machine> = TicketLock::new(Machine::new());
static MEMORY: TicketLock<Mine, EarlyMemory> = TicketLock::new(EarlyMemory::new());

pub fn main(start_info: u64) {
    let (mut machine, mut memory) = (MACHINE.lock(), MEMORY.lock());
    let left = pvh::read(&pc::Firmware, start_info, &mut memory).expect("a loader's memory map");
    memory.reserve(0, pc::image_end()).expect("room for a range");
    acpi::read(&pc::Firmware, left.rsdp, &mut machine).expect("a PC has ACPI's tables");
    // SAFETY: what was added is memory of this machine, and all that is in use was reserved.
    let mut boot = unsafe { memory.begin::<Mine>(&mut machine, ADDRESS_MAP) }.expect("memory");
    let pages = boot.pages(Config::new()).expect("room for metadata");
    boot.finish(pages, u64::MAX).expect("the memory was not there before");
    for node in pages.topology().nodes() {
        let near = Request::new(Order(0), Gfp::KERNEL).on(node.id);
        let page = pages.alloc(near).expect("a page is free");
        pc::print(format_args!("node {}: page frame {:#x}\n", node.id, page.0));
        pages.free(page, Order(0)).expect("it is freed once");
    }
}
