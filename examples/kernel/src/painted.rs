//! How deep a call goes: the stack below it is painted, and what lost its paint was used.

use crate::arch;

/// Bytes that are painted.
pub const ROOM: usize = 64 << 10;
/// The paint.
pub const PAINT: u64 = 0x5ca1_ab1e_0ddb_a11d;

/// Bytes of stack that a call takes, of this CPU, with interrupts off or none to come. What stands there by chance with the paint's
/// own bytes is not seen.
#[inline(never)]
pub fn stack_of(call: impl FnOnce()) -> u64 {
    let end = arch::paint();
    call();
    let begin = end - ROOM;
    let word = |at: usize| core::ptr::with_exposed_provenance::<u64>(begin + at * 8);
    // SAFETY: it is this CPU's stack, which has so much room: below the end nobody has anything.
    let is_painted = |at: usize| unsafe { word(at).read_volatile() } == PAINT;
    let painted = (0..ROOM / 8).take_while(|&at| is_painted(at)).count();
    (ROOM - painted * 8) as u64
}
