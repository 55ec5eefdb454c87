//! Objects of the resource manager: which class a handle is of, learned from what is allocated.

use std::collections::HashMap;

/// Handles beyond this many are not learned: a program has a few thousand.
const MAX: usize = 1 << 18;

/// By client and handle: class and parent.
#[derive(Debug, Default)]
pub(super) struct Objects {
    known: HashMap<(u32, u32), (Box<str>, u32)>,
}

impl Objects {
    pub(super) fn learn(&mut self, client: u32, handle: u32, class: &str, parent: u32) {
        if self.known.len() < MAX {
            self.known.insert((client, handle), (class.into(), parent));
        }
    }

    /// The class of a handle.
    pub(super) fn class(&self, client: u32, handle: u32) -> Option<&str> {
        self.known.get(&(client, handle)).map(|(class, _)| &**class)
    }

    /// Forgets an object and what is below it; all objects of a client with the client.
    pub(super) fn forget(&mut self, client: u32, handle: u32) {
        if client == handle {
            return self.known.retain(|(of, _), _| *of != client);
        }
        let mut gone = vec![handle];
        while let Some(handle) = gone.pop() {
            if self.known.remove(&(client, handle)).is_none() {
                continue;
            }
            let below = self
                .known
                .iter()
                .filter(|((of, _), (_, parent))| *of == client && *parent == handle);
            gone.extend(below.map(|((_, handle), _)| *handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_takes_its_children_along() {
        let mut objects = Objects::default();
        objects.learn(1, 1, "NV01_ROOT", 0);
        objects.learn(1, 2, "NV01_DEVICE_0", 1);
        objects.learn(1, 3, "NV20_SUBDEVICE_0", 2);
        objects.learn(2, 3, "NV01_DEVICE_0", 2);
        objects.forget(1, 2);
        assert_eq!((objects.class(1, 2), objects.class(1, 3)), (None, None));
        assert_eq!(
            (objects.class(1, 1), objects.class(2, 3)),
            (Some("NV01_ROOT"), Some("NV01_DEVICE_0"))
        );
        objects.forget(1, 1);
        assert_eq!(objects.class(1, 1), None);
    }
}
