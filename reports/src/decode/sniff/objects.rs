//! Objects of the resource manager: which class a handle is of, learned from what is allocated.

use std::collections::{HashMap, HashSet};

/// Handles beyond this many are not learned: a program has a few thousand.
const MAX: usize = 1 << 18;

/// By client.
#[derive(Debug, Default)]
pub(super) struct Objects {
    clients: HashMap<u32, Client>,
    /// Of all clients.
    count: usize,
}

/// By handle.
#[derive(Debug, Default)]
struct Client {
    known: HashMap<u32, Object>,
    /// The handles below each, so that no other is looked at when it is freed.
    children: HashMap<u32, HashSet<u32>>,
}

#[derive(Debug)]
struct Object {
    class: Box<str>,
    parent: u32,
}

impl Objects {
    pub(super) fn learn(&mut self, client: u32, handle: u32, class: &str, parent: u32) {
        if self.count < MAX {
            let client = self.clients.entry(client).or_default();
            let before = client.known.len();
            client.learn(handle, Object { class: class.into(), parent });
            self.count += client.known.len() - before;
        }
    }

    /// The class of a handle.
    pub(super) fn class(&self, client: u32, handle: u32) -> Option<&str> {
        self.clients.get(&client)?.known.get(&handle).map(|object| &*object.class)
    }

    /// Forgets an object and what is below it; all objects of a client with the client.
    pub(super) fn forget(&mut self, client: u32, handle: u32) {
        if client == handle {
            let gone = self.clients.remove(&client);
            self.count -= gone.map_or(0, |gone| gone.known.len());
        } else if let Some(client) = self.clients.get_mut(&client) {
            let before = client.known.len();
            client.forget(handle);
            self.count -= before - client.known.len();
        }
    }
}

impl Client {
    fn learn(&mut self, handle: u32, object: Object) {
        self.children.entry(object.parent).or_default().insert(handle);
        let parent = object.parent;
        // A handle that is used again is below its new parent alone.
        if let Some(before) = self.known.insert(handle, object).filter(|old| old.parent != parent) {
            self.leave(before.parent, handle);
        }
    }

    fn forget(&mut self, handle: u32) {
        let Some(object) = self.known.get(&handle) else { return };
        self.leave(object.parent, handle);
        let mut gone = vec![handle];
        while let Some(handle) = gone.pop() {
            self.known.remove(&handle);
            gone.extend(self.children.remove(&handle).into_iter().flatten());
        }
    }

    /// A handle is not below that parent any more.
    fn leave(&mut self, parent: u32, handle: u32) {
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(&handle);
            if children.is_empty() {
                self.children.remove(&parent);
            }
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

    #[test]
    fn a_handle_that_is_used_again_has_its_new_parent() {
        let mut objects = Objects::default();
        objects.learn(1, 2, "NV01_DEVICE_0", 1);
        objects.learn(1, 3, "NV01_DEVICE_0", 1);
        objects.learn(1, 4, "NV20_SUBDEVICE_0", 2);
        objects.learn(1, 4, "NV20_SUBDEVICE_0", 3);
        objects.forget(1, 2);
        assert_eq!(objects.class(1, 4), Some("NV20_SUBDEVICE_0"));
        objects.forget(1, 3);
        assert_eq!(objects.class(1, 4), None);
    }

    /// Handles that name each other as parents come from a program that lies, or from calls unseen.
    #[test]
    fn a_circle_of_parents_ends() {
        let mut objects = Objects::default();
        objects.learn(1, 2, "NV01_DEVICE_0", 3);
        objects.learn(1, 3, "NV01_DEVICE_0", 2);
        objects.forget(1, 3);
        assert_eq!((objects.class(1, 2), objects.class(1, 3), objects.count), (None, None, 0));
        assert!(objects.clients[&1].children.is_empty());
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut objects = Objects::default();
        for handle in 2..=MAX as u32 {
            objects.learn(1, handle, "NV01_MEMORY_SYSTEM", handle / 1024);
        }
        objects.learn(2, 2, "NV01_ROOT", 0);
        objects.learn(2, 3, "NV01_DEVICE_0", 2);
        assert_eq!((objects.class(2, 2), objects.class(2, 3)), (Some("NV01_ROOT"), None));
        objects.forget(1, MAX as u32);
        objects.learn(2, 3, "NV01_DEVICE_0", 2);
        assert_eq!(objects.class(2, 3), Some("NV01_DEVICE_0"));
        objects.forget(1, 1);
        objects.forget(2, 2);
        assert_eq!(objects.count, 0);
    }
}
