//! `asm!` for sequences on a list, which knows the list's fields by name.

/// As `asm!` of one template. The template may name the fields of a `RingList` by their offsets, and the
/// answers of a batch; each sequence uses some of them, and the comment at the end names all, as `asm!` demands.
macro_rules! list_asm {
    ($template:expr, $($operands:tt)*) => {
        core::arch::asm!(
            $template,
            "/* {owner} {cursor} {cold} {limit} {mask} {ring} {pops_seen} {MOVED} {IN_HOT_PLACE} */",
            $($operands)*
            owner = const core::mem::offset_of!(RingList, owner),
            cursor = const core::mem::offset_of!(RingList, cursor),
            cold = const core::mem::offset_of!(RingList, cold),
            limit = const core::mem::offset_of!(RingList, limit),
            mask = const core::mem::offset_of!(RingList, mask),
            ring = const core::mem::offset_of!(RingList, ring),
            pops_seen = const core::mem::offset_of!(RingList, pops_seen),
            MOVED = const MOVED,
            IN_HOT_PLACE = const IN_HOT_PLACE,
            options(nostack),
        )
    };
}
