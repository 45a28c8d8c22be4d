//! Rule sets as types: what a zone's free pages are kept in, and what a CPU has beside its lists.
//!
//! There are two mechanisms. [`Places`] is nearpage's own: maps and quotas, and a zone's lock for the reserve and
//! isolation alone. [`Linux`] is a buddy under the zone's lock, with pagesets that are tuned; which Linux is data
//! ([`Model`](crate::model::Model)). A host names one of them ([`Platform::Rules`](crate::host::Platform::Rules)), and
//! nothing of the other is linked. [`ByModel`] has both, for hosts that learn a model's name when they run: it is the one
//! place where anybody asks which rules they are.
//!
//! Three traits say what rules do, one on each floor: `ZoneRules` to a zone, `PagesetRules` to a CPU's pageset, `RuleSet` to
//! the allocator. Each is a table: a function, and the names of what either mechanism does for it, which stands in
//! `places/` or `linux/`. They are no traits of [`Platform`](crate::host::Platform) itself: a type that it names keeps
//! `PageAllocator<P>` what it is for all that stands on it.

use crate::buddy::{Buddy, FallbackRules};
use crate::model::PageblockOwners;
use crate::pcp::pieces::Pieces;
use crate::pcp::{ALL_LISTS, LISTS};
use crate::places::quota::Quota;
use crate::places::zone_maps::ZoneMaps;
use crate::units::PageCount;

/// What zones and pagesets are made of under some rules.
pub trait RuleParts: Sized + 'static {
    /// What the lock of a zone guards.
    type Guarded: Send;
    /// What a zone has beside that.
    type Stock<'m>: Send + Sync;
    /// What a CPU has of a zone beside its lists.
    type Cache<'m>: Copy + Send + Sync;

    /// How many lists a pageset has.
    fn lists(cache: Self::Cache<'_>) -> usize;
    /// Whether these are the rules of a model.
    fn have(owners: PageblockOwners) -> bool;
    /// Whether zones have maps and CPUs have quotas, under a model of these rules.
    fn have_maps(owners: PageblockOwners) -> bool;
    /// What the lock of an empty zone guards.
    fn guarded(rules: FallbackRules) -> Self::Guarded;
    /// What else the zone has.
    fn stock<'m>(maps: Option<ZoneMaps<'m>>) -> Self::Stock<'m>;
    /// What a CPU has beside its lists.
    fn cache<'m>(pieces: Option<&'m Pieces>, quota: Option<&'m Quota>) -> Self::Cache<'m>;
    /// Pages on free lists, those that are isolated too; `None` where a counter says what is free.
    fn unused(guarded: &Self::Guarded, stock: &Self::Stock<'_>) -> Option<PageCount>;
    /// What is published at the end of a hold of the zone's lock, unless it is published at each change.
    fn published(guarded: &Self::Guarded, stock: &Self::Stock<'_>) -> Option<Published>;
    /// Ends a hold of the zone's lock.
    fn end_hold(guarded: &mut Self::Guarded) -> Held;
}

/// What others read of free lists without the lock.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Free pages.
    pub free: PageCount,
    /// Those of them that are kept back for urgent requests.
    pub kept_back: PageCount,
    /// One more than the largest order with a free block of types 0 to 2; 0 if there is none.
    pub orders: u8,
    /// The same for blocks reserved for urgent requests.
    pub reserved_orders: u8,
}

/// What happened in a hold of a zone's lock.
#[derive(Clone, Copy, Default, Debug)]
pub struct Held {
    /// Attempts to mix a pageblock.
    pub claims: u32,
    /// Blocks linked and unlinked.
    pub operations: u64,
}

/// Rules by which zones have maps and CPUs have quotas; of [`ByModel`], if the model is one of those.
pub trait HasMaps: RuleParts {
    /// The maps of a zone.
    fn maps<'a, 'm>(stock: &'a Self::Stock<'m>) -> &'a ZoneMaps<'m>;
    /// The quota of a CPU.
    fn quota<'m>(cache: Self::Cache<'m>) -> &'m Quota;
}

/// Rules by which zones have a buddy; of [`ByModel`], if the model is one of those.
pub trait HasBuddy: RuleParts {
    /// The buddy of a zone.
    fn buddy(guarded: &mut Self::Guarded) -> &mut Buddy;
    /// The pieces of a CPU that owns pageblocks.
    fn pieces<'m>(cache: Self::Cache<'m>) -> Option<&'m Pieces>;
}

/// nearpage's own rules: places and quotas.
#[derive(Debug)]
pub enum Places {}

impl RuleParts for Places {
    type Guarded = ();
    type Stock<'m> = ZoneMaps<'m>;
    type Cache<'m> = &'m Quota;

    fn lists(_: &Quota) -> usize {
        ALL_LISTS
    }
    fn have(owners: PageblockOwners) -> bool {
        owners == PageblockOwners::Quotas
    }
    fn have_maps(_: PageblockOwners) -> bool {
        true
    }
    fn guarded(_: FallbackRules) {}
    fn stock<'m>(maps: Option<ZoneMaps<'m>>) -> ZoneMaps<'m> {
        maps.expect(HAS_MAPS)
    }
    fn cache<'m>(_: Option<&'m Pieces>, quota: Option<&'m Quota>) -> &'m Quota {
        quota.expect(HAS_QUOTA)
    }
    fn unused((): &(), _: &ZoneMaps<'_>) -> Option<PageCount> {
        None
    }
    fn published((): &(), _: &ZoneMaps<'_>) -> Option<Published> {
        None
    }
    fn end_hold((): &mut ()) -> Held {
        Held::default()
    }
}

impl HasMaps for Places {
    #[inline(always)]
    fn maps<'a, 'm>(stock: &'a Self::Stock<'m>) -> &'a ZoneMaps<'m> {
        stock
    }
    #[inline(always)]
    fn quota<'m>(cache: Self::Cache<'m>) -> &'m Quota {
        cache
    }
}

/// Linux's rules, and those of proposals for it.
#[derive(Debug)]
pub enum Linux {}

impl RuleParts for Linux {
    type Guarded = Buddy;
    type Stock<'m> = ();
    type Cache<'m> = Option<&'m Pieces>;

    fn lists(_: Option<&Pieces>) -> usize {
        LISTS
    }
    fn have(owners: PageblockOwners) -> bool {
        owners != PageblockOwners::Quotas
    }
    fn have_maps(_: PageblockOwners) -> bool {
        false
    }
    fn guarded(rules: FallbackRules) -> Buddy {
        Buddy::new(rules)
    }
    fn stock(_: Option<ZoneMaps<'_>>) {}
    fn cache<'m>(pieces: Option<&'m Pieces>, _: Option<&'m Quota>) -> Option<&'m Pieces> {
        pieces
    }
    fn unused(guarded: &Buddy, (): &()) -> Option<PageCount> {
        Some(guarded.unused_pages())
    }
    fn published(guarded: &Buddy, (): &()) -> Option<Published> {
        let orders = guarded.largest_available_order().map_or(0, |order| order.0 + 1);
        let reserved_orders = guarded.largest_reserved_order().map_or(0, |order| order.0 + 1);
        let (free, kept_back) = (guarded.free_pages(), guarded.kept_back());
        Some(Published { free, kept_back, orders, reserved_orders })
    }
    fn end_hold(guarded: &mut Buddy) -> Held {
        let (claims, operations) = (guarded.drain_claims_tried(), guarded.take_operations());
        Held { claims, operations }
    }
}

impl HasBuddy for Linux {
    #[inline(always)]
    fn buddy(guarded: &mut Buddy) -> &mut Buddy {
        guarded
    }
    #[inline(always)]
    fn pieces<'m>(cache: Self::Cache<'m>) -> Option<&'m Pieces> {
        cache
    }
}

/// The rules of the model that an allocator is made with: for hosts that run any.
#[derive(Debug)]
pub enum ByModel {}

/// What a CPU has beside its lists under the one rules or the others.
#[derive(Clone, Copy, Debug)]
pub enum CacheByModel<'m> {
    /// Its quota.
    Places(&'m Quota),
    /// Its pieces, if it owns pageblocks.
    Linux(Option<&'m Pieces>),
}

impl RuleParts for ByModel {
    /// Empty under rules with maps.
    type Guarded = Buddy;
    type Stock<'m> = Option<ZoneMaps<'m>>;
    type Cache<'m> = CacheByModel<'m>;

    fn lists(cache: CacheByModel<'_>) -> usize {
        match cache {
            CacheByModel::Places(quota) => Places::lists(quota),
            CacheByModel::Linux(pieces) => Linux::lists(pieces),
        }
    }
    fn have(_: PageblockOwners) -> bool {
        true
    }
    fn have_maps(owners: PageblockOwners) -> bool {
        Places::have(owners)
    }
    fn guarded(rules: FallbackRules) -> Buddy {
        Linux::guarded(rules)
    }
    fn stock<'m>(maps: Option<ZoneMaps<'m>>) -> Option<ZoneMaps<'m>> {
        maps
    }
    fn cache<'m>(pieces: Option<&'m Pieces>, quota: Option<&'m Quota>) -> CacheByModel<'m> {
        quota.map_or(CacheByModel::Linux(pieces), CacheByModel::Places)
    }
    fn unused(guarded: &Buddy, stock: &Option<ZoneMaps<'_>>) -> Option<PageCount> {
        if stock.is_some() { None } else { Linux::unused(guarded, &()) }
    }
    fn published(guarded: &Buddy, stock: &Option<ZoneMaps<'_>>) -> Option<Published> {
        if stock.is_some() { None } else { Linux::published(guarded, &()) }
    }
    fn end_hold(guarded: &mut Buddy) -> Held {
        Linux::end_hold(guarded)
    }
}

impl HasMaps for ByModel {
    #[inline(always)]
    fn maps<'a, 'm>(stock: &'a Self::Stock<'m>) -> &'a ZoneMaps<'m> {
        stock.as_ref().expect(HAS_MAPS)
    }
    #[inline(always)]
    fn quota<'m>(cache: Self::Cache<'m>) -> &'m Quota {
        match cache {
            CacheByModel::Places(quota) => quota,
            CacheByModel::Linux(_) => unreachable!("{HAS_QUOTA}"),
        }
    }
}

impl HasBuddy for ByModel {
    #[inline(always)]
    fn buddy(guarded: &mut Buddy) -> &mut Buddy {
        guarded
    }
    #[inline(always)]
    fn pieces<'m>(cache: Self::Cache<'m>) -> Option<&'m Pieces> {
        match cache {
            CacheByModel::Linux(pieces) => pieces,
            CacheByModel::Places(_) => None,
        }
    }
}

const HAS_MAPS: &str = "under rules with maps each zone has them";
const HAS_QUOTA: &str = "under rules with quotas each CPU has one of each zone";

/// Writes a trait of what rules do, and its implementations, out of a table. What either mechanism does is the name of a
/// method, or an expression where a line says it.
macro_rules! rules {
    (
        $(#[$about:meta])*
        trait $trait:ident: $($super:path),+;
        $(
            $(#[$doc:meta])*
            fn $name:ident($here:ident: &$of:ident $(, $argument:ident: $type:ty)* $(,)?) $(-> $answer:ty)?
                => $places:tt | $linux:tt;
        )*
    ) => {
        $(#[$about])*
        #[allow(private_interfaces, reason = "hosts name rules; nobody but these three has any")]
        pub trait $trait: $($super +)+ {
            $(
                $(#[$doc])*
                fn $name<'m, P: Platform<Rules = Self>>($here: &$of<'m, P> $(, $argument: $type)*) $(-> $answer)?;
            )*
        }
        #[allow(private_interfaces, unused_variables, reason = "as above; where there is nothing to do")]
        impl $trait for crate::rule_set::Places {
            $(
                #[inline(always)]
                fn $name<'m, P: Platform<Rules = Self>>($here: &$of<'m, P> $(, $argument: $type)*) $(-> $answer)? {
                    crate::rule_set::body!($here $places ($($argument),*))
                }
            )*
        }
        #[allow(private_interfaces, unused_variables, reason = "as above; where there is nothing to do")]
        impl $trait for crate::rule_set::Linux {
            $(
                #[inline(always)]
                fn $name<'m, P: Platform<Rules = Self>>($here: &$of<'m, P> $(, $argument: $type)*) $(-> $answer)? {
                    crate::rule_set::body!($here $linux ($($argument),*))
                }
            )*
        }
        #[allow(private_interfaces, reason = "as above")]
        impl $trait for crate::rule_set::ByModel {
            $(
                #[inline(always)]
                fn $name<'m, P: Platform<Rules = Self>>($here: &$of<'m, P> $(, $argument: $type)*) $(-> $answer)? {
                    match $here.has_maps() {
                        true => crate::rule_set::body!($here $places ($($argument),*)),
                        false => crate::rule_set::body!($here $linux ($($argument),*)),
                    }
                }
            )*
        }
    };
}
pub(crate) use rules;

/// What an entry of such a table does.
macro_rules! body {
    ($here:ident $name:ident ($($argument:ident),*)) => { $here.$name($($argument),*) };
    ($here:ident { $($does:tt)* } ($($argument:ident),*)) => { { $($does)* } };
}
pub(crate) use body;
