//! What users are told of models: a line about each, and what there is in place of a name that is none.

use core::fmt;

use super::Model;

impl Model {
    /// A line about the model, for lists.
    pub fn about(&self) -> &'static str {
        match self.name {
            "nearpage" => {
                "nearpage's own: maps of free pages, a quota for each CPU, no lock past the lists"
            }
            "linux-6.18" => "Linux 6.18, checked against traces alone",
            "linux-6.12" => "Linux 6.12",
            "series-2023" => {
                "Linux 6.6 with the ten patches of the pageset series of 2023 as posted"
            }
            "linux-6.6" => "Linux 6.6: as 6.1, with drains that nothing but `high` limits",
            "linux-6.1" => "Linux 6.1",
            "rfc-2023-zones" => {
                "Linux 6.18 with a zone for each 256 GiB of a node, as the RFC of 2023 proposes"
            }
            "rfc-2026-owned" => "Linux 6.18 with pageblocks that CPUs own, after the RFC of 2026",
            _ => "rules of its own",
        }
    }

    /// The model called `name`.
    ///
    /// # Errors
    /// [`UnknownModel`], whose text lists all models.
    pub fn named(name: &str) -> Result<Self, UnknownModel<'_>> {
        Self::by_name(name).ok_or(UnknownModel { name })
    }
}

/// A name that is no model's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownModel<'a> {
    /// The name.
    pub name: &'a str,
}

impl fmt::Display for UnknownModel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no model", self.name)?;
        if self.name.starts_with("linux-7.") {
            write!(f, " (no difference known from linux-6.18: take that)")?;
        }
        write!(f, ", expected one of:")?;
        Model::ALL
            .iter()
            .try_for_each(|model| write!(f, "\n  {:<15} {}", model.name, model.about()))
    }
}

impl core::error::Error for UnknownModel<'_> {}

#[cfg(test)]
mod tests {
    use std_alloc::string::ToString;

    use super::*;

    #[test]
    fn each_model_has_a_line_of_its_own_and_is_found() {
        for (at, model) in Model::ALL.iter().enumerate() {
            assert_eq!(Model::named(model.name), Ok(*model));
            assert_ne!(model.about(), "rules of its own", "{}", model.name);
            let others = &Model::ALL[..at];
            assert!(others.iter().all(|other| other.about() != model.about()), "{}", model.name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_models() {
        let told = Model::named("linux-2.6").unwrap_err().to_string();
        assert!(
            told.starts_with("\"linux-2.6\" is no model, expected one of:\n  nearpage"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1 + Model::ALL.len());
        let told = Model::named("linux-7.0").unwrap_err().to_string();
        assert!(told.contains("no difference known from linux-6.18: take that"), "{told}");
    }
}
