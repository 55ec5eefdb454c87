//! Records the launches of a CUDA program into a trace.
//!
//! `nvabi trace record` preloads this. A launch of an instrumented kernel gets regions for its warps in
//! device memory; the module's own variable tells the kernel where they are. Once the launch is over,
//! the regions are copied back and written. The program's results and CUDA's errors do not
//! change: where recording fails, a message says so and the launch continues without.

mod driver;
mod hooks;
mod output;
mod recorder;
