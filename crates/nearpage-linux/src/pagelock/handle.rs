//! The lock of one page, found once.

use std::fmt;

use nearpage::Pfn;
use nearpage::rules::WaitersBit;
use nearpage_pagelock::PageLockError;
use nearpage_pagelock::internals::LockWord;

use crate::memory::Memory;
use crate::pages::LockOfPage;

/// The lock of a page of an allocated block, looked up once. Use it where a thread locks the same page often.
///
/// The lock belongs to the page. Dropping the handle does not unlock it.
///
/// ```
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
/// let block = memory.alloc_pages(1)?;
/// let handle = memory.page_handle(block.pfn())?;
/// handle.lock()?;
/// assert_eq!(memory.try_lock_page(block.pfn())?, false);
/// // SAFETY: locked above.
/// unsafe { handle.unlock() }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct PageHandle<'a> {
    memory: &'a Memory,
    word: LockWord<'a>,
    /// The word while no thread has or wants the lock. Nothing else changes the word of an allocated page. [`NEVER`] for a
    /// page whose word does not change when its block is freed.
    idle: u32,
    waiters_bit: WaitersBit,
    pfn: Pfn,
}

/// A value that no frame's word has: its last bits are zero.
const NEVER: u32 = u32::MAX;

/// Whether a page may be freed while there is a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// Only together with the handle: the block's owner has both.
    OnlyWithIt,
    /// At any time.
    AtAnyTime,
}

impl PageHandle<'_> {
    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// As [`Memory::try_lock_page`].
    ///
    /// # Errors
    /// As [`Memory::try_lock_page`].
    #[inline(always)]
    pub fn try_lock(&self) -> Result<bool, PageLockError> {
        if self.word.lock_idle(self.idle) { Ok(true) } else { self.try_lock_slow() }
    }

    #[cold]
    #[inline(never)]
    fn try_lock_slow(self) -> Result<bool, PageLockError> {
        self.memory.try_lock_page(self.pfn)
    }

    /// As [`Memory::lock_page`].
    ///
    /// # Errors
    /// As [`Memory::lock_page`].
    #[inline(always)]
    pub fn lock(&self) -> Result<(), PageLockError> {
        if !self.word.lock_idle(self.idle) {
            self.lock_slow()?;
        }
        Ok(())
    }

    // By value, and with an answer of its own: nothing is written to the stack before the exchange, which would wait for it.
    #[cold]
    #[inline(never)]
    fn lock_slow(self) -> Result<(), PageLockError> {
        self.memory.lock_page(self.pfn)
    }

    /// As [`Memory::unlock_page`].
    ///
    /// # Errors
    /// As [`Memory::unlock_page`].
    ///
    /// # Safety
    /// * As [`Memory::unlock_page`].
    #[inline(always)]
    pub unsafe fn unlock(&self) -> Result<(), PageLockError> {
        if self.waiters_bit == WaitersBit::Off || !self.word.unlock_idle(self.idle) {
            self.unlock_slow()?;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(self) -> Result<(), PageLockError> {
        self.memory.pages().unlock_page(self.pfn)
    }
}

impl fmt::Debug for PageHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageHandle({})", self.pfn)
    }
}

impl Memory {
    /// Looks up the lock of a page of an allocated block. The block should stay allocated as long as the handle is used: once
    /// the block is free, locking fails, and once it is allocated again, the handle locks its new owner's page.
    ///
    /// # Errors
    /// [`PageLockError::Foreign`] and [`PageLockError::NotAllocated`].
    pub fn page_handle(&self, pfn: Pfn) -> Result<PageHandle<'_>, PageLockError> {
        self.handle(pfn, Freed::AtAnyTime)
    }

    pub(super) fn handle(&self, pfn: Pfn, freed: Freed) -> Result<PageHandle<'_>, PageLockError> {
        let LockOfPage { word, idle, idle_of_first, waiters_bit } =
            self.pages().lock_of_page(pfn)?;
        let idle = match freed {
            Freed::OnlyWithIt => idle,
            Freed::AtAnyTime => idle_of_first.unwrap_or(NEVER),
        };
        Ok(PageHandle { memory: self, word, idle, waiters_bit, pfn })
    }
}
