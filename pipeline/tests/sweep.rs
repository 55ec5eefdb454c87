//! Tags that are locked beside others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::sync::Arc;

use common::{clang, headers, lock, ok, spec, tag};
use nvabi_pipeline::lock::{Fact, ItemKind, Lock, state_at};
use nvabi_pipeline::sweep::sweep;

test_main!();

/// Takes 1.2 out of a lock and reads it in again.
fn again(lock: &mut Lock) {
    lock.remove(&tag("1.2"));
    ok(sweep(lock, &headers(), &[spec()], &[tag("1.2")], |_| {}));
}

/// A constant that no header changes, at tag 1.2, when 1.1 is made out to have another value.
fn beside_a_lie(alter: impl FnOnce(&mut Lock)) -> Fact {
    let mut lock = lock(&clang());
    let key = ("rm".to_owned(), "inc/constants.h".to_owned());
    let item = (ItemKind::Constant, "NVT_DECIMAL".to_owned());
    for state in lock.headers.get_mut(&key).unwrap().items.get_mut(&item).unwrap() {
        state.value.as_mut().unwrap().fact = Arc::new(Fact::Constant(43));
    }
    alter(&mut lock);
    again(&mut lock);
    (*state_at(&lock.headers[&key].items[&item], 1).unwrap().fact).clone()
}

/// What is taken from the tag beside it changes nothing.
#[test]
fn a_tag_is_the_same_beside_another() {
    let clang = clang();
    let alone = lock(&clang);
    let mut beside = alone.clone();
    again(&mut beside);
    assert_eq!(beside, alone);
}

#[test]
fn what_the_lock_says_is_taken_for_equal_text() {
    assert_eq!(beside_a_lie(|_| {}), Fact::Constant(43));
}

#[test]
fn nothing_is_taken_of_other_headers_than_were_locked() {
    assert_eq!(beside_a_lie(|lock| lock.tags[0].headers = "other".into()), Fact::Constant(42));
}
