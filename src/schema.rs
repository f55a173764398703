//! Versions of the JSON schemas: `name/major.minor`. A major bump breaks, a minor one adds.

use std::fmt;

/// A schema that this build writes, and reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name, for example `lockstep.case`.
    pub name: &'static str,
    /// Breaking version.
    pub major: u32,
    /// Additive version.
    pub minor: u32,
}

/// A schema string names something that this build can't read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// Not of the form `name/major.minor`, or absent.
    Malformed(String),
    /// Another kind of artifact.
    OtherName {
        /// What the file says.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// An older major version.
    TooOld(String),
    /// A newer major version.
    TooNew(String),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Malformed(found) => {
                write!(f, "schema {found:?} is not of the form name/major.minor")
            }
            SchemaError::OtherName { found, expected } => {
                write!(f, "schema is {found}, expected {expected}")
            }
            SchemaError::TooOld(found) => {
                write!(f, "schema {found} is too old for this version of lockstep")
            }
            SchemaError::TooNew(found) => {
                write!(f, "schema {found} is too new for this version of lockstep")
            }
        }
    }
}

impl std::error::Error for SchemaError {}

impl Schema {
    /// Checks a schema string. Returns whether it is of a newer minor version, whose additions are to be ignored.
    pub fn check(&self, found: &str) -> Result<bool, SchemaError> {
        // What is quoted back is cut: it may be anything.
        let found: &str = &found.chars().take(80).collect::<String>();
        let malformed = || SchemaError::Malformed(found.into());
        let (name, version) = found.split_once('/').ok_or_else(malformed)?;
        let (major, minor) = version.split_once('.').ok_or_else(malformed)?;
        let major: u32 = major.parse().map_err(|_| malformed())?;
        let minor: u32 = minor.parse().map_err(|_| malformed())?;
        if name != self.name {
            return Err(SchemaError::OtherName { found: found.into(), expected: self.name });
        }
        match major.cmp(&self.major) {
            std::cmp::Ordering::Less => Err(SchemaError::TooOld(found.into())),
            std::cmp::Ordering::Greater => Err(SchemaError::TooNew(found.into())),
            std::cmp::Ordering::Equal => Ok(minor > self.minor),
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.name, self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_reads_its_major_and_says_why_it_reads_no_other() {
        let schema = Schema { name: "lockstep.case", major: 2, minor: 1 };
        assert_eq!(schema.check("lockstep.case/2.0"), Ok(false));
        assert_eq!(schema.check("lockstep.case/2.2"), Ok(true));
        assert!(matches!(schema.check("lockstep.case/1.9"), Err(SchemaError::TooOld(_))));
        assert!(matches!(schema.check("lockstep.case/3.0"), Err(SchemaError::TooNew(_))));
        assert!(matches!(schema.check("lockstep.fuzz/2.0"), Err(SchemaError::OtherName { .. })));
        for bad in ["", "lockstep.case", "lockstep.case/2", "lockstep.case/x.y", "/-1.0"] {
            assert!(matches!(schema.check(bad), Err(SchemaError::Malformed(_))), "{bad}");
        }
    }
}
