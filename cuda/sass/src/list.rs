use std::{fmt, ops::Deref};

/// A short list without a heap: what it has no room for, the table cannot make.
#[derive(Clone, Copy)]
pub struct List<T, const N: usize> {
    items: [T; N],
    length: u8,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// An empty one; `filler` is what unused places hold.
    pub(crate) fn new(filler: T) -> Self {
        List { items: [filler; N], length: 0 }
    }

    pub(crate) fn push(&mut self, item: T) {
        if let Some(place) = self.items.get_mut(usize::from(self.length)) {
            *place = item;
            self.length += 1;
        }
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.length)]
    }
}

impl<T: PartialEq, const N: usize> PartialEq for List<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
