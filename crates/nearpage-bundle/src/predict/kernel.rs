//! The model of a kernel's release.

use std::fmt;
use std::str::FromStr;

use nearpage::Model;

/// The choice of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ModelChoice {
    /// This one.
    Of(Model),
    /// The rules of the recorded kernel, or of the nearest one that is modelled.
    #[default]
    Auto,
}

/// A model, and whether it is that of the recorded kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelModel {
    /// The rules.
    pub model: Model,
    /// Whether they are the rules of another kernel.
    pub is_of_other_kernel: bool,
}

/// A name that is no choice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}\n  {AUTO:<15} {}", nearpage::UnknownModel { name: found }, ModelChoice::Auto.about())]
pub struct UnknownModel {
    /// The name.
    pub found: String,
}

/// The name of [`ModelChoice::Auto`].
const AUTO: &str = "auto";

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ModelChoice {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<ModelChoice, UnknownModel> {
        if name == AUTO {
            return Ok(ModelChoice::Auto);
        }
        let model = Model::by_name(name).ok_or_else(|| UnknownModel { found: name.into() })?;
        Ok(ModelChoice::Of(model))
    }
}

impl ModelChoice {
    /// All choices.
    pub fn all() -> impl Iterator<Item = ModelChoice> {
        Model::ALL.into_iter().map(ModelChoice::Of).chain([ModelChoice::Auto])
    }

    /// The name that [`FromStr`] reads: the model's, or `auto`.
    pub fn name(self) -> &'static str {
        match self {
            ModelChoice::Of(model) => model.name,
            ModelChoice::Auto => AUTO,
        }
    }

    /// A line about it.
    pub fn about(self) -> &'static str {
        match self {
            ModelChoice::Of(model) => model.about(),
            ModelChoice::Auto => {
                "those of the recorded kernel, or of the nearest one that is modelled"
            }
        }
    }

    /// Whether it is these rules.
    pub fn is(self, model: &Model) -> bool {
        self.name() == model.name
    }

    /// The rules for a kernel of this release.
    pub fn for_kernel(self, release: &str) -> KernelModel {
        /// The first release that is nearer to 6.6 than to 6.1.
        const NEARER_6_6: (u32, u32) = (6, 4);
        /// The release with which pagesets began to tune themselves: the largest step between the models.
        const TUNED_PAGESETS: (u32, u32) = (6, 7);
        /// The first release that is taken for 6.18.
        const LATER_DRAINS: (u32, u32) = (6, 16);
        let version = version(release);
        let nearest = match version {
            Some(version) if version < NEARER_6_6 => Model::LINUX_6_1,
            Some(version) if version < TUNED_PAGESETS => Model::LINUX_6_6,
            Some(version) if version >= LATER_DRAINS => Model::LINUX_6_18,
            _ => Model::LINUX_6_12,
        };
        let model = match self {
            ModelChoice::Of(model) => model,
            ModelChoice::Auto => nearest,
        };
        let own = match version {
            Some((6, 1)) => Some(Model::LINUX_6_1.name),
            Some((6, 6)) => Some(Model::LINUX_6_6.name),
            Some((6, 12)) => Some(Model::LINUX_6_12.name),
            Some((6, 18)) => Some(Model::LINUX_6_18.name),
            _ => None,
        };
        KernelModel { model, is_of_other_kernel: own != Some(model.name) }
    }
}

/// 6 and 12 of `6.12.95+deb12-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for choice in ModelChoice::all() {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "linux-2.6".parse::<ModelChoice>().unwrap_err().to_string();
        assert!(
            error.starts_with("\"linux-2.6\" is no model, expected one of:\n  nearpage "),
            "{error}"
        );
    }

    #[test]
    fn kernels_get_their_own_or_the_nearest_model() {
        let auto = |release| {
            let found = ModelChoice::Auto.for_kernel(release);
            (found.model.name, found.is_of_other_kernel)
        };
        assert_eq!(auto("6.12.95+deb12-amd64"), ("linux-6.12", false));
        assert_eq!(auto("6.1.0-56-amd64"), ("linux-6.1", false));
        assert_eq!(auto("6.1"), ("linux-6.1", false));
        assert_eq!(auto("6.18.44-fc-v657"), ("linux-6.18", false));
        assert_eq!(auto("6.17.0"), ("linux-6.18", true));
        assert_eq!(auto("5.10.0"), ("linux-6.1", true));
        assert_eq!(auto("6.3.0"), ("linux-6.1", true));
        assert_eq!(auto("6.5.0-15-generic"), ("linux-6.6", true));
        assert_eq!(auto("6.6.9"), ("linux-6.6", false));
        assert_eq!(auto("6.7.0"), ("linux-6.12", true));
        assert_eq!(auto(""), ("linux-6.12", true));
        let other = ModelChoice::Of(Model::LINUX_6_1).for_kernel("6.12.95");
        assert_eq!((other.model.name, other.is_of_other_kernel), ("linux-6.1", true));
    }
}
