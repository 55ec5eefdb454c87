//! Tags that are locked beside others.
#![cfg(feature = "libclang")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{clang, headers, lock, ok, spec, tag};
use nvabi_pipeline::lock::{Fact, ItemKind, Lock, state_at};
use nvabi_pipeline::sweep::sweep;

/// Takes 1.2 out of a lock and reads it in again.
fn again(lock: &mut Lock) {
    lock.remove(&tag("1.2"));
    ok(sweep(lock, &headers(), &[spec()], &[tag("1.2")], |_| {}));
}

/// A constant that no header changes, at tag 1.2, when 1.1 is made out to have another value.
fn beside_a_lie(alter: impl FnOnce(&mut Lock)) -> Option<Fact> {
    let mut lock = lock(&clang()?);
    let key = ("rm".to_owned(), "inc/constants.h".to_owned());
    let item = (ItemKind::Constant, "NVT_DECIMAL".to_owned());
    for state in lock.headers.get_mut(&key).unwrap().items.get_mut(&item).unwrap() {
        state.value.as_mut().unwrap().fact = Arc::new(Fact::Constant(43));
    }
    alter(&mut lock);
    again(&mut lock);
    Some((*state_at(&lock.headers[&key].items[&item], 1).unwrap().fact).clone())
}

/// What is taken from the tag beside it changes nothing.
#[test]
fn a_tag_is_the_same_beside_another() {
    let Some(clang) = clang() else { return };
    let alone = lock(&clang);
    let mut beside = alone.clone();
    again(&mut beside);
    assert_eq!(beside, alone);
}

#[test]
fn what_the_lock_says_is_taken_for_equal_text() {
    if let Some(fact) = beside_a_lie(|_| {}) {
        assert_eq!(fact, Fact::Constant(43));
    }
}

#[test]
fn nothing_is_taken_of_other_headers_than_were_locked() {
    if let Some(fact) = beside_a_lie(|lock| lock.tags[0].headers = "other".into()) {
        assert_eq!(fact, Fact::Constant(42));
    }
}
