//! Packages: the file systems over object stores that can be measured, each described by one TOML file.
//!
//! Owns the format of these files, their checks, and the catalog of shipped files and those of the user.
//!
//! Refuses secrets in commands: other users of the machine can read the arguments of a process. Secrets are available to the environment
//! and to files only.

mod catalog;
mod definition;
mod description;
mod template;

pub use catalog::{Catalog, CatalogError};
pub use definition::DefinitionError;
pub use description::{
    Action, Api, Characteristics, Command, Commands, Driver, Links, Mapping, Package, Posix, Program, Target,
    Version,
};
pub use template::{Template, TemplateError, Variables};
