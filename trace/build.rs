//! The types of `include/nvabi_trace.h`, from its lock, into `trace.rs` in `OUT_DIR`.

use nvabi_pipeline::build::Build;

fn main() {
    Build::new("abi-specs").output("trace.rs").run();
}
