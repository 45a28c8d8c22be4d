//! One field, as predicted and as recorded, and how many of them are the same.

use nearpage::{NodeId, ZoneKind};
use serde_json::Value;

/// The classes of fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// min, low, high, promo.
    Watermarks,
    /// Lowmem reserve.
    Protection,
    /// batch, high_min, high_max; 6.1's high.
    PagesetSizes,
    /// vm stats threshold.
    Thresholds,
    /// The orders that boot logs.
    FallbackOrder,
    /// The zonelists in the kernel.
    Zonelists,
    /// The value that boot computes.
    MinFreeKbytes,
    /// The answer of `numa_mem_id()` on each CPU.
    NumaMemId,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 8] = [
        Class::Watermarks,
        Class::Protection,
        Class::PagesetSizes,
        Class::Thresholds,
        Class::FallbackOrder,
        Class::Zonelists,
        Class::MinFreeKbytes,
        Class::NumaMemId,
    ];

    /// The name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Class::Watermarks => "watermarks",
            Class::Protection => "protection",
            Class::PagesetSizes => "pageset_sizes",
            Class::Thresholds => "thresholds",
            Class::FallbackOrder => "fallback_order",
            Class::Zonelists => "zonelists",
            Class::MinFreeKbytes => "min_free_kbytes",
            Class::NumaMemId => "numa_mem_id",
        }
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Class::PagesetSizes => "pageset sizes",
            Class::FallbackOrder => "fallback order",
            other => other.key(),
        }
    }
}

/// A field, as predicted and as recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Its class.
    pub class: Class,
    /// Its name.
    pub field: String,
    /// The predicted value.
    pub predicted: Value,
    /// The value that the kernel printed.
    pub recorded: Value,
    /// The rule of the prediction.
    pub rule: &'static str,
    /// Whether the kernel computed it at boot, from sizes that it no longer prints.
    pub is_apart: bool,
}

impl Comparison {
    pub(super) fn new(
        class: Class,
        field: String,
        predicted: impl Into<Value>,
        recorded: impl Into<Value>,
        rule: &'static str,
    ) -> Comparison {
        let (predicted, recorded) = (predicted.into(), recorded.into());
        Comparison { class, field, predicted, recorded, rule, is_apart: false }
    }

    /// Whether both are the same.
    pub fn is_match(&self) -> bool {
        self.predicted == self.recorded
    }
}

/// All fields of a capture that can be compared.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparisons {
    /// The fields.
    pub fields: Vec<Comparison>,
}

/// How many fields there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The same.
    pub matched: usize,
    /// All.
    pub total: usize,
}

impl Counts {
    fn count(&mut self, comparison: &Comparison) {
        self.total += 1;
        self.matched += usize::from(comparison.is_match());
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.matched += other.matched;
        self.total += other.total;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.matched, self.total)
    }
}

impl Comparisons {
    /// The fields of a class, without those that are compared apart.
    pub fn counts(&self, class: Class) -> Counts {
        self.sum(|field| field.class == class && !field.is_apart)
    }

    /// The fields of a class that are compared apart.
    pub fn apart(&self, class: Class) -> Counts {
        self.sum(|field| field.class == class && field.is_apart)
    }

    /// The differences, apart or not.
    pub fn mismatches(&self, apart: bool) -> impl Iterator<Item = &Comparison> {
        self.fields.iter().filter(move |field| field.is_apart == apart && !field.is_match())
    }

    fn sum(&self, is_counted: impl Fn(&Comparison) -> bool) -> Counts {
        let mut counts = Counts::default();
        self.fields.iter().filter(|field| is_counted(field)).for_each(|field| counts.count(field));
        counts
    }
}

/// `node 0 zone DMA32 min`.
pub(super) fn zone_field(node: NodeId, kind: ZoneKind, what: &str) -> String {
    format!("node {node} zone {} {what}", kind.name())
}
