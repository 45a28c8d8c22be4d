//! What a PC's kernel has around its allocator: memory that is mapped, the firmware's tables, a serial line, an end.

use core::arch::{asm, global_asm};
use core::fmt::{self, Write as _};
use core::panic::PanicInfo;

use nearpage_kernel::firmware::Physical;

global_asm!(include_str!("boot.s"), options(att_syntax, raw));

unsafe extern "C" {
    /// The linker's: where the kernel ends.
    static _end: u8;
}

/// `boot.s` maps so much, each byte where it is.
const MAPPED: u64 = 512 << 30;

#[unsafe(no_mangle)]
extern "C" fn first_cpu(start_info: u32) -> ! {
    crate::kernel::main(start_info.into());
    exit(0x10)
}

/// Where the kernel ends.
pub fn image_end() -> u64 {
    (&raw const _end).addr() as u64
}

/// Where physical memory is.
pub fn mapped(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// What the loader and the firmware left in memory.
pub struct Firmware;

impl Physical for Firmware {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let is_mapped = address > 0 && address.checked_add(length as u64)? <= MAPPED;
        // SAFETY: it is mapped, any bytes are bytes, and nobody writes to what firmware left.
        is_mapped.then(|| unsafe { core::slice::from_raw_parts(mapped(address), length) })
    }
}

/// Prints on the first serial line.
pub fn print(text: fmt::Arguments<'_>) {
    struct Serial;
    impl fmt::Write for Serial {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                // SAFETY: the port of the serial line, which nothing else uses. The emulator's is always ready.
                unsafe { asm!("out dx, al", in("dx") 0x3f8_u16, in("al") byte) };
            }
            Ok(())
        }
    }
    // The serial line takes everything.
    let _ = Serial.write_fmt(text);
}

/// Ends the machine: by QEMU's debug-exit device, with this code, or by switching it off.
fn exit(code: u8) -> ! {
    // SAFETY: a port each, which does that or is not there.
    unsafe {
        asm!("out dx, al", in("dx") 0xf4_u16, in("al") code);
        asm!("out dx, ax", in("dx") 0x604_u16, in("ax") 0x2000_u16);
    }
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print(format_args!("{info}\n"));
    // SAFETY: QEMU ends with 1 where `cargo run` put its device for that; elsewhere the port is of nothing.
    unsafe { asm!("out dx, al", in("dx") 0x501_u16, in("al") 0_u8) };
    exit(0x11)
}
