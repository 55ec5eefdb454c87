//! The types of `include/nvabi-devmem.h`, from its lock, into `devmem.rs` in `OUT_DIR`.

use nvabi_pipeline::build::Build;

fn main() {
    Build::new("abi-specs").output("devmem.rs").run();
}
