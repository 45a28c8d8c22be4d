//! `orders`: pairs of every order. Pagesets keep orders 0 to 3 and 9; the others go to the zone.

use nearpage::Order;

use super::pairs;
use crate::field::Context;
use crate::rows::{Key, Work};
use crate::source::{Blocks, Glibc, Mmap, Source};
use crate::step::Step;

/// Orders 0 to [`Order::MAX`].
const ORDERS: usize = Order::MAX.0 as usize + 1;

/// All pairs of all orders, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for threads in context.cpus.one_and_all() {
        for (name, memory) in context.field.memories() {
            steps.extend(of_all_orders(context, name, threads, memory));
        }
        // Behind nearpage: the table begins with it.
        let works = (0..=Order::MAX.0).map(Work::OrderPair);
        steps.extend(pairs::limit_step(context, works, threads));
        steps.extend(of_all_orders(context, "glibc", threads, Glibc));
        steps.extend(of_all_orders(context, "mmap", threads, Mmap));
    }
    steps
}

fn of_all_orders<'a, S: Source + Copy + 'a>(
    context: Context<'a>,
    allocator: &'static str,
    threads: usize,
    source: S,
) -> [Step<'a>; ORDERS] {
    let key = |order| Key { work: Work::OrderPair(order), allocator, threads, n: 1 };
    [
        pairs::step(context, key(0), Blocks::<_, 0>(source)),
        pairs::step(context, key(1), Blocks::<_, 1>(source)),
        pairs::step(context, key(2), Blocks::<_, 2>(source)),
        pairs::step(context, key(3), Blocks::<_, 3>(source)),
        pairs::step(context, key(4), Blocks::<_, 4>(source)),
        pairs::step(context, key(5), Blocks::<_, 5>(source)),
        pairs::step(context, key(6), Blocks::<_, 6>(source)),
        pairs::step(context, key(7), Blocks::<_, 7>(source)),
        pairs::step(context, key(8), Blocks::<_, 8>(source)),
        pairs::step(context, key(9), Blocks::<_, 9>(source)),
        pairs::step(context, key(10), Blocks::<_, 10>(source)),
    ]
}
