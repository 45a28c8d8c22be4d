//! All that the allocator has beside blocks: what reaches it keeps it in the file.

use core::fmt::{self, Write};
use core::hint::black_box;

use nearpage::{Gfp, Order, PageCount, Pfn, PfnRange, Placement, Policy, Request};
use nearpage_kernel::{Aside, Pages};
use nearpage_pagelock::PageLocks as _;

use crate::mine::Mine;

struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        black_box(text.as_ptr());
        Ok(())
    }
}

/// Calls each part once.
pub fn reach(pages: &'static Pages<'static, Mine>, request: Request, start: u64) {
    let range = PfnRange::new(start, start + 64);
    let mut some = [Pfn(start); 64];
    black_box(pages.alloc_bulk(request, &mut some).is_ok());
    black_box(pages.free_bulk(&some).is_ok());
    black_box(pages.alloc_with(&Placement::by(Policy::Local), request).is_ok());
    black_box(pages.alloc_contiguous(PageCount(5000), Order(9), request).is_ok());
    black_box(pages.alloc_at(range.start, range.pages()).is_ok());
    black_box(pages.alloc_within(range, PageCount(9), Order(0)).is_ok());
    black_box(pages.free_range(range).is_ok());
    black_box(pages.split(Pfn(start), Order(3), Order(0)).is_ok());
    black_box(pages.online(range).is_ok());
    black_box(pages.offline(range).is_ok());
    black_box(pages.lock_page(Pfn(start)).is_ok());
    black_box(pages.unlock_page(Pfn(start)).is_ok());
    black_box(pages.alloc_cached(Request::new(Order(0), Gfp::ATOMIC)));
    black_box(pages.set_settings(pages.settings()).is_ok());
    black_box(pages.check().is_ok());
    let aside = Aside::<8>::new();
    black_box(aside.put(Pfn(start), Order(0)));
    black_box(aside.free_all(pages).is_ok());
    let mut line = Line;
    black_box(pages.write_zoneinfo(&mut line).is_ok());
    black_box(pages.write_buddyinfo(&mut line).is_ok());
    black_box(pages.report(request).is_ok_and(|report| write!(line, "{report}").is_ok()));
}
