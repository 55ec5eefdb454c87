//! Random sequences of calls against a small model of the rules.
