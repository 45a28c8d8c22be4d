//! DPDK's mempool with its per-thread caches, where DPDK was installed when this was built.
//!
//! Its objects have one size: it has no rows for 2 MiB blocks. A thread that is not DPDK's own has to
//! register, or it would work without a cache. The functions are inline in C and are calls from here.

#[cfg(not(dpdk))]
pub fn build() -> Result<Box<dyn crate::contestant::Contestant>, String> {
    Err("pkg-config did not find libdpdk 21.11 or newer when this was built".into())
}

#[cfg(dpdk)]
pub use linked::build;

#[cfg(dpdk)]
mod linked {
    use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
    use std::io;
    use std::ptr::NonNull;

    use nearpage::Order;

    use crate::contestant::{Contestant, enlist};
    use crate::peers::heap::Address;
    use crate::region::{POOL_PAGES, Region};
    use crate::source::{PAGE_BYTES, PageSource};
    use crate::task::Work;
    use crate::workers::allowed_cpus;

    #[repr(C)]
    struct RteMempool {
        _opaque: [u8; 0],
    }

    // `dpdk.c`.
    unsafe extern "C" {
        fn peers_dpdk_start(lcores: *const c_char) -> c_int;
        fn peers_dpdk_pool(
            first: *mut c_char,
            bytes: usize,
            objects: c_uint,
            page_bytes: c_uint,
        ) -> *mut RteMempool;
        fn peers_dpdk_enter_thread() -> c_int;
        fn peers_dpdk_errno() -> c_int;
        fn peers_dpdk_get(pool: *mut RteMempool) -> *mut c_void;
        fn peers_dpdk_put(pool: *mut RteMempool, object: *mut c_void);
        fn peers_dpdk_get_bulk(
            pool: *mut RteMempool,
            objects: *mut *mut c_void,
            count: c_uint,
        ) -> c_int;
        fn peers_dpdk_put_bulk(pool: *mut RteMempool, objects: *const *mut c_void, count: c_uint);
    }

    struct Dpdk(NonNull<RteMempool>);

    // SAFETY: a mempool is made for use by several threads at once; it lives as long as the process.
    unsafe impl Send for Dpdk {}
    // SAFETY: as above.
    unsafe impl Sync for Dpdk {}

    /// Starts DPDK in its smallest set-up (no huge pages, no devices) and makes a pool.
    pub fn build() -> Result<Box<dyn Contestant>, String> {
        let cpus = allowed_cpus().map_err(|error| error.to_string())?;
        let cpu = cpus.first().ok_or("no CPU is allowed")?;
        let lcores = CString::new(format!("--lcores=0@{cpu}")).expect("a number has no NUL");
        // DPDK pins the thread that starts it.
        let started = std::thread::spawn(move || start(&lcores)).join();
        started.map_err(|_| "the thread that starts DPDK panicked")??;
        let region = Region::reserve().map_err(|error| error.to_string())?;
        Ok(enlist(Dpdk(pool(&region)?)))
    }

    fn start(lcores: &CStr) -> Result<(), String> {
        // SAFETY: the text ends with NUL, and DPDK copies what it keeps. It is started once.
        match unsafe { peers_dpdk_start(lcores.as_ptr()) } {
            0 => Ok(()),
            error => Err(format!("rte_eal_init: {}", io::Error::from_raw_os_error(error))),
        }
    }

    fn pool(region: &Region) -> Result<NonNull<RteMempool>, String> {
        let first = region.front(0).cast::<c_char>();
        let objects = POOL_PAGES / 2 - 1;
        // SAFETY: the range belongs to `region`, which nothing else uses and which is never unmapped.
        let pool = unsafe {
            peers_dpdk_pool(first, POOL_PAGES * PAGE_BYTES, objects as c_uint, PAGE_BYTES as c_uint)
        };
        // SAFETY: reads a variable of this thread.
        let reason = || unsafe { peers_dpdk_errno() };
        NonNull::new(pool)
            .ok_or_else(|| format!("rte_mempool: {}", io::Error::from_raw_os_error(reason())))
    }

    impl PageSource for Dpdk {
        type Block = Address;
        const BLANK: Address = Address(NonNull::dangling());

        #[inline]
        fn alloc(&self, _order: Order) -> Option<Address> {
            // SAFETY: the pool lives as long as the process.
            NonNull::new(unsafe { peers_dpdk_get(self.0.as_ptr()) }).map(Address)
        }

        #[inline]
        unsafe fn free(&self, block: Address, _order: Order) {
            // SAFETY: passed on from the caller.
            unsafe { peers_dpdk_put(self.0.as_ptr(), block.0.as_ptr()) };
        }

        #[inline]
        fn alloc_bulk(&self, blocks: &mut [Address]) -> usize {
            let objects = blocks.as_mut_ptr().cast::<*mut c_void>();
            let count = blocks.len() as c_uint;
            // SAFETY: `Address` is a pointer in memory, and there is room for `count` of them.
            match unsafe { peers_dpdk_get_bulk(self.0.as_ptr(), objects, count) } {
                0 => blocks.len(),
                _ => 0,
            }
        }

        #[inline]
        unsafe fn free_bulk(&self, blocks: &[Address]) {
            let objects = blocks.as_ptr().cast::<*mut c_void>();
            // SAFETY: as above; the blocks are the caller's promise.
            unsafe { peers_dpdk_put_bulk(self.0.as_ptr(), objects, blocks.len() as c_uint) };
        }

        fn address(&self, block: Address) -> usize {
            block.0.addr().get()
        }

        fn enter_thread(&self) {
            // SAFETY: DPDK was started. A thread that is refused works without a cache.
            unsafe { peers_dpdk_enter_thread() };
        }

        fn runs(&self, work: Work) -> bool {
            work != Work::HugePair
        }
    }
}
