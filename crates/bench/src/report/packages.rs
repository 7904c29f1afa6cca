//! The table of packages: their versions and characteristics, as Table 1 of the paper.

use crate::package::{Catalog, Mapping, Package, Posix};
use harness::Table;

/// Makes the table of all packages.
pub fn packages(catalog: &Catalog) -> Table {
    let heads = [
        "package",
        "versions",
        "open source",
        "POSIX",
        "data mapping",
        "metadata",
        "compression",
        "source",
        "recommended options",
    ];
    Table {
        title: "Packages".to_owned(),
        heads: heads.iter().map(|&head| head.to_owned()).collect(),
        rows: catalog.packages().map(row).collect(),
    }
}

fn row(package: &Package) -> Vec<String> {
    let characteristics = &package.characteristics;
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let posix = match characteristics.posix {
        Posix::Full => "full",
        Posix::Partial => "partial",
        Posix::None => "no",
    };
    let mapping = match characteristics.mapping {
        Mapping::Direct => "direct",
        Mapping::Chunked => "chunked",
        Mapping::None => "none",
    };
    let versions: Vec<&str> = package.versions.iter().map(|version| version.name.as_str()).collect();
    vec![
        package.name.clone(),
        versions.join(", "),
        yes_or_no(characteristics.open_source),
        posix.to_owned(),
        mapping.to_owned(),
        characteristics.metadata.clone(),
        yes_or_no(characteristics.compression),
        characteristics.source.clone(),
        package.links.recommendation.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_their_characteristics() {
        let table = packages(&Catalog::shipped().unwrap());
        let s3fs = table.rows.iter().find(|row| row[0] == "s3fs").unwrap();
        assert_eq!(s3fs[1..8], ["v1", "yes", "partial", "direct", "in name", "no", "NSDF-FUSE, Table 1"]);
    }
}
