//! Which name a person most likely meant.

/// The name that is nearest to one that nothing has, if any is near.
pub(super) fn nearest<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let near = names.into_iter().map(|name| (distance(wanted, name), name));
    let near = near.filter(|(distance, _)| *distance <= 1 + wanted.len() / 5);
    near.min().map(|(_, name)| name)
}

/// How many letters must be changed, added or removed.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, own) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(letter != own);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant() {
        let names = ["identity.name", "identity.sku", "memory.size"];
        assert_eq!(nearest("identity.nam", names), Some("identity.name"));
        assert_eq!(nearest("memory.sizee", names), Some("memory.size"));
        assert_eq!(nearest("fan.percent", names), None);
        assert_eq!((distance("", "abc"), distance("abc", "")), (3, 3));
        assert_eq!((distance("abc", "abc"), distance("kitten", "sitting")), (0, 3));
    }
}
